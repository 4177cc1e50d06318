// Tests lossy encoders between hosts. A lane encodes its slice of the host's sum, all ranks end
// with equal bits, and the residual holds the difference.
#include <cmath>

#include "codecs/wire_format.hpp"
#include "host_ranks.hpp"
#include "random.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

constexpr int kCalls = 6;

struct Ends {
  std::vector<float> result;
  std::vector<double> given, arrived, residual;
};

// `shared`: arrays are in shared memory, and are reduced there.
std::vector<Ends> run(const std::vector<int>& host_of, Wire wire, std::size_t count, bool shared) {
  std::vector<Ends> all(host_of.size());
  on_hosts(host_of, {}, [&](RankContext& context, Links&) {
    Ends& mine = all[static_cast<std::size_t>(context.rank)];
    mine.given.assign(count, 0);
    mine.arrived.assign(count, 0);
    const std::size_t counts[] = {count};
    Feedback feedback(counts);
    std::vector<float> own(count);
    Node& node = *context.node;
    const std::uint64_t offset = node.allocate(std::max<std::size_t>(1, count) * sizeof(float));
    float* const x = shared ? reinterpret_cast<float*>(node.at(node.rank(), offset)) : own.data();
    Random random(static_cast<std::uint64_t>(context.rank) + 1);
    for (int number = 0; number < kCalls; ++number) {
      for (std::size_t i = 0; i < count; ++i) {
        x[i] = static_cast<float>(below(random, 2001)) / 1000 - 1;
        mine.given[i] += static_cast<double>(x[i]);
      }
      Call call;
      call.count = count;
      call.input = call.output = x;
      call.wire = wire;
      call.feedback = &feedback;
      context.channel.run(std::move(call), nullptr);
      for (std::size_t i = 0; i < count; ++i) mine.arrived[i] += static_cast<double>(x[i]);
    }
    mine.result.assign(x, x + count);
    mine.residual.assign(feedback.residual(0).begin(), feedback.residual(0).end());
    context.barrier.arrive_and_wait();
    node.free(offset);
  });
  return all;
}

void check(const std::vector<int>& host_of, const char* name, std::size_t count, bool shared) {
  const std::vector<Ends> all = run(host_of, find_wire(name), count, shared);
  std::vector<double> missing(count);
  bool owes = false;
  for (const Ends& ends : all) {
    CHECK(ends.result == all[0].result);
    for (std::size_t i = 0; i < count; ++i) {
      missing[i] += ends.given[i] - ends.residual[i];
      owes = owes || ends.residual[i] != 0;
    }
  }
  for (std::size_t i = 0; i < count; ++i) CHECK(std::abs(missing[i] - all[0].arrived[i]) < 1e-3);
  CHECK(owes == (count > 10'000));  // small data is sent without encoding
}

}  // namespace

int main() {
  for (const auto& host_of : kHostLayouts) {
    for (const char* name : {"int8", "onebit", "topk"}) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{7}, std::size_t{50'001}}) {
        check(host_of, name, count, false);
        check(host_of, name, count, true);
      }
    }
  }
}
