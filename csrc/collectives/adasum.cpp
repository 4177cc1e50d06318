// Implements Adasum: checks its calls and runs them on the schedule of a butterfly.
#include "collectives/adasum.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "kernels/kernels.hpp"

namespace ringcomm {
namespace {

constexpr const char* kAlgorithm = "butterfly_doubling";  // pairs complete buffers, for any number of ranks

// Combines the tensors of a fused call separately: each is a vector, stored after the previous one.
Combine combine_vectors(const Call& call) {
  return [dtype = call.dtype, parts = call.fused_counts](void* target, const void* first, const void* second,
                                                         std::size_t count) {
    if (parts.empty()) return kernels::adasum(dtype, target, first, second, count);
    auto* to = static_cast<std::byte*>(target);
    auto *a = static_cast<const std::byte*>(first), *b = static_cast<const std::byte*>(second);
    for (const std::size_t part : parts) {
      kernels::adasum(dtype, to, a, b, part);
      const std::size_t nbytes = part * size_of(dtype);
      to += nbytes, a += nbytes, b += nbytes;
    }
  };
}

}  // namespace

void check_adasum(const Call& call) {
  const std::string what = concat(name_of(call.collective), ": ");
  if (call.collective != Collective::allreduce) throw invalid(what, "only allreduce supports op adasum");
  if (!info(call.dtype).floating) throw invalid(what, "op adasum does not support dtype ", info(call.dtype).name);
  if (!call.algorithm.empty() && call.algorithm != kAlgorithm)
    throw invalid(what, "op adasum always uses algorithm '", kAlgorithm, "', not '", call.algorithm, "'");
  if (!encoding_of(call.wire, call.dtype).rounds) {
    throw invalid(
        what,
        "op adasum cannot use a lossy wire format, because it encodes vectors several times; leave out the format, "
        "or use one that only rounds, as float16 and bfloat16 do");
  }
}

const Choice& adasum_choice() {
  static const Choice choice{Route::adasum, find_algorithm(Collective::allreduce, kAlgorithm), 0, {0, 1}, kAlgorithm};
  return choice;
}

std::unique_ptr<Task> move_adasum(CallContext& context, const Call& call) {
  RunOptions options = run_options(context, call, kAlgorithm);
  options.pre = call.pre;
  options.post = call.post;
  options.combine = combine_vectors(call);
  const auto schedule = context.schedules.get(*adasum_choice().algorithm, context.me, context.size(), 0);
  Layout layout = Layout::even(call.output, call.count, schedule->blocks, size_of(call.dtype),
                               std::max<std::size_t>(1, call.count));
  return make_run_schedule(*context.transport, schedule, context.peers, std::move(layout), call.input, context.tags,
                           std::move(options));
}

}  // namespace ringcomm
