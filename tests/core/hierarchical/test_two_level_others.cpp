// Tests two-level broadcast, reduce, all-gather and reduce-scatter: every root, dtype and algorithm
// between hosts, unequal counts, and segments smaller than the buffer.
#include <numeric>

#include "host_ranks.hpp"
#include "values.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

using enum Collective;

struct Case {
  Collective collective;
  std::string algorithm;
  DType dtype = DType::float32;
  Op op = Op::sum;
  std::size_t count = 0;  // elements of the buffer, or of the longest block
  int root = 0;
  bool in_place = false;
  Wire wire;
  int shape = 0;  // shape of unequal counts
};

std::size_t me(const RankContext& context) { return static_cast<std::size_t>(context.rank); }
bool per_rank(Collective c) { return c == allgather || c == reducescatter; }
bool moves(Collective c) { return c == allgather || c == broadcast; }

std::vector<std::size_t> counts_of(const Case& one, int size) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < size; ++rank) {
    const bool none = one.shape == 2 && rank % 3 == 1;
    const std::size_t smaller = one.shape == 0 ? 0 : one.count / static_cast<std::size_t>(rank + 2);
    counts.push_back(none ? 0 : one.count - smaller);
  }
  return counts;
}

// Returns an element of the concatenation of all ranks' arrays (all-gather), or of one rank's array
// (other collectives).
double element(const Case& one, int rank, std::size_t i) { return given(one.dtype, one.op, rank, i); }

class Run {
 public:
  Run(RankContext& context, const Case& one) : context_(context), one_(one), counts_(counts_of(one, context.size)) {
    for (int rank = 0; rank < context.size; ++rank) ranks_.push_back(rank);
    first_ = std::accumulate(counts_.begin(), counts_.begin() + context.rank, std::size_t{0});
  }

  void operator()() {
    const std::size_t own = counts_[me(context_)], whole = per_rank(one_.collective) ? total(counts_) : one_.count;
    const std::size_t taken = one_.collective == allgather ? own : whole;
    std::vector<double> values(taken);
    for (std::size_t i = 0; i < taken; ++i) values[i] = element(one_, context_.rank, i);
    store(one_.dtype, input_, values);
    const std::size_t out = one_.collective == reducescatter ? own : whole;
    output_.assign(out * item(one_.dtype), std::byte{0x5a});
    Call call = make_call();
    if (one_.in_place) use_one_array(call);
    context_.channel.run(std::move(call), nullptr);
    check(out);
    if (one_.collective == allgather || one_.collective == broadcast || one_.collective == allreduce) same_bits();
  }

 private:
  Call make_call() {
    Call call;
    call.collective = one_.collective;
    call.dtype = one_.dtype;
    call.op = one_.op;
    call.root = one_.root;
    call.algorithm = one_.algorithm;
    call.count = one_.count;
    if (per_rank(one_.collective)) call.counts = counts_;
    call.wire = one_.wire;
    if (one_.dtype == DType::float32 && !moves(one_.collective) && one_.op != Op::product) {  // the factors cancel out
      call.pre.factor = 2;
      call.post.factor = 0.5;
    }
    const bool root = context_.rank == one_.root;
    call.input = one_.collective == broadcast && !root ? output_.data() : input_.data();
    if (one_.collective != reduce || root) call.output = output_.data();
    return call;
  }

  void use_one_array(Call& call) {
    const std::size_t size = item(one_.dtype);
    switch (one_.collective) {
      case allgather:
        std::copy(input_.begin(), input_.end(), output_.begin() + static_cast<std::ptrdiff_t>(first_ * size));
        call.input = output_.data() + first_ * size;
        break;
      case reducescatter:  // the result is its block of the input, or the input's beginning
        result_ = context_.rank % 2 == 0 ? first_ * size : 0;
        call.output = input_.data() + result_;
        break;
      default:
        if (call.output) call.input = call.output;
        if (context_.rank == one_.root || one_.collective != broadcast)
          std::copy(input_.begin(), input_.end(), output_.begin());
    }
  }

  double wanted(std::size_t i) const {
    switch (one_.collective) {
      case broadcast:
        return element(one_, one_.root, i);
      case allgather: {
        std::size_t rank = 0;
        while (i >= counts_[rank]) i -= counts_[rank++];
        return element(one_, static_cast<int>(rank), i);
      }
      default:
        return expected(one_.dtype, one_.op, ranks_, context_.size, i);
    }
  }

  void check(std::size_t out) {
    if (one_.collective == reduce && context_.rank != one_.root) {
      for (const std::byte one : output_) CHECK(one == std::byte{0x5a} || one_.in_place);
      return;
    }
    std::vector<std::byte> result = output_;
    if (one_.collective == reducescatter && one_.in_place) {
      const auto from = input_.begin() + static_cast<std::ptrdiff_t>(result_);
      result.assign(from, from + static_cast<std::ptrdiff_t>(out * item(one_.dtype)));
    }
    const auto values = load(one_.dtype, result);
    const std::size_t shift = one_.collective == reducescatter ? first_ : 0;
    for (std::size_t i = 0; i < out; ++i) {
      const double want = wanted(i + shift);
      if (moves(one_.collective) ? values[i] == want : right(one_.dtype, one_.op, values[i], want)) continue;
      std::fprintf(stderr, "%s %s %s %s p=%d rank=%d count=%zu shape=%d root=%d i=%zu: %g, not %g\n",
                   name_of(one_.collective).data(), one_.algorithm.c_str(), info(one_.dtype).name.data(),
                   name_of(one_.op).data(), context_.size, context_.rank, one_.count, one_.shape, one_.root, i,
                   values[i], want);
      std::abort();
    }
  }

  void same_bits() {
    context_.shown[me(context_)] = output_.data();
    context_.barrier.arrive_and_wait();
    const void* const first = context_.shown[0];
    if (!output_.empty()) CHECK(std::memcmp(output_.data(), first, output_.size()) == 0);
    context_.barrier.arrive_and_wait();
  }

  RankContext& context_;
  const Case& one_;
  std::vector<std::size_t> counts_;
  std::vector<int> ranks_;
  std::size_t first_ = 0, result_ = 0;
  std::vector<std::byte> input_, output_;
};

std::vector<std::string> ways(Collective collective) {
  std::vector<std::string> names{""};
  for (const std::string_view name : algorithm_names(collective)) names.push_back("two_level:" + std::string(name));
  return names;
}

constexpr Collective kAll[]{broadcast, reduce, allgather, reducescatter};

void everything(const std::vector<int>& host_of, std::size_t segment) {
  ChannelConfig config;
  config.segment_bytes = segment;
  on_hosts(host_of, config, [&](RankContext& context, Links&) {
    int turn = 0;
    for (const Collective collective : kAll) {
      for (const std::string& way : ways(collective)) {
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{3'001}, std::size_t{20'011}}) {
          for (int shape = 0; shape < (per_rank(collective) ? 3 : 1); ++shape) {
            const int root = ++turn % context.size;
            Case one{collective, way, DType::float32, Op::sum, count, root, turn % 2 == 0, {}, shape};
            Run(context, one)();
            one.dtype = DType::int32;
            one.op = Op::average;
            Run(context, one)();
          }
        }
      }
    }
  });
}

void dtypes_and_ops(const std::vector<int>& host_of) {
  ChannelConfig config;
  config.segment_bytes = 2 << 10;
  on_hosts(host_of, config, [&](RankContext& context, Links&) {
    for (const Collective collective : {allreduce, reduce, reducescatter, allgather, broadcast}) {
      const std::string way = "two_level:" + std::string(algorithm_names(collective).front());
      for (std::size_t d = 0; d < kNumbers; ++d) {
        for (const Op op : kElementOps) {
          if (moves(collective) && op != Op::sum) continue;
          Run(context, {collective,
                        way,
                        static_cast<DType>(d),
                        op,
                        1'009,
                        static_cast<int>(d) % context.size,
                        d % 2 == 0,
                        {},
                        1})();
        }
      }
    }
    // The results are exact, because 16-bit floats hold these values.
    for (const Collective collective : {allreduce, allgather, broadcast, reduce, reducescatter}) {
      Run(context, {collective, "two_level:" + std::string(algorithm_names(collective).front()), DType::float32,
                    Op::sum, 5'003, context.size - 1, false, find_wire("bfloat16"), 1})();
    }
  });
}

}  // namespace

int main() {
  for (const auto& host_of : kHostLayouts) {
    everything(host_of, 1 << 10);
    std::printf("%zu ranks: ok\n", host_of.size());
    std::fflush(stdout);
  }
  everything({0, 0, 1, 2, 2, 2}, 0);
  for (const auto& host_of : {kHostLayouts[2], kHostLayouts[5], kHostLayouts[8]}) dtypes_and_ops(host_of);
  std::puts("two levels: passed");
}
