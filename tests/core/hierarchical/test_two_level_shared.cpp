// Tests two-level all-reduce of arrays in shared memory: of all ranks of a host, of some ranks, or
// on some hosts only.
#include <numeric>

#include "host_ranks.hpp"
#include "values.hpp"

using namespace ringcomm;
using namespace ringcomm::testing;

namespace {

// An array in the rank's arena; its destructor frees it.
class SharedArray {
 public:
  SharedArray(Node& node, std::size_t nbytes) : node_(node), offset_(node.allocate(std::max<std::size_t>(1, nbytes))) {}
  ~SharedArray() { node_.free(offset_); }
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;
  std::byte* data() { return node_.at(node_.rank(), offset_); }

 private:
  Node& node_;
  std::uint64_t offset_;
};

struct Case {
  std::string algorithm;
  DType dtype = DType::float32;
  Op op = Op::sum;
  std::size_t count = 0;
  Wire wire;
};

// An array in several stretches. All of them, or all but one, are in the arena, in a different
// order than in the array.
class Stretched {
 public:
  Stretched(Node& node, const std::vector<std::byte>& array, std::size_t item, std::size_t number, bool shared)
      : outside_(array.size()) {
    const std::size_t count = array.size() / item;
    for (std::size_t i = 0; i < number; ++i) {
      const std::size_t begin = count * i * i / (number * number), end = count * (i + 1) * (i + 1) / (number * number);
      parts_.push_back({begin * item, (end - begin) * item});
    }
    fragments.resize(number);
    for (std::size_t i = number; i-- > 0;) {
      const auto [begin, nbytes] = parts_[i];
      const bool here = shared || i != number / 2;
      std::byte* data = outside_.data();
      if (here) data = pieces_.emplace_back(std::make_unique<SharedArray>(node, nbytes))->data();
      std::copy_n(array.data() + begin, nbytes, data);
      fragments[i] = {data, data, nbytes / item};
    }
  }
  void join(std::vector<std::byte>& array) const {
    for (std::size_t i = 0; i < fragments.size(); ++i)
      std::copy_n(static_cast<const std::byte*>(fragments[i].input), parts_[i].second, array.data() + parts_[i].first);
  }
  std::vector<Fragment> fragments;

 private:
  std::vector<std::pair<std::size_t, std::size_t>> parts_;  // begin and size, in bytes
  std::vector<std::unique_ptr<SharedArray>> pieces_;
  std::vector<std::byte> outside_;
};

// `shared`: this rank's array is in the arena. `stretches`: their number; 0 means one contiguous
// array.
void run(RankContext& context, const Case& one, bool shared, std::size_t stretches = 0) {
  std::vector<double> values(one.count);
  for (std::size_t i = 0; i < one.count; ++i) values[i] = given(one.dtype, one.op, context.rank, i);
  std::vector<std::byte> array;
  store(one.dtype, array, values);
  SharedArray there(*context.node, array.size());
  if (shared && !array.empty()) std::memcpy(there.data(), array.data(), array.size());
  std::vector<int> ranks(static_cast<std::size_t>(context.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  Call call;
  call.algorithm = one.algorithm;
  call.dtype = one.dtype;
  call.op = one.op;
  call.count = one.count;
  call.wire = one.wire;
  Stretched stretched(*context.node, array, size_of(one.dtype), stretches, shared);
  call.fragments = stretched.fragments;
  if (stretches == 0) call.input = call.output = shared ? there.data() : array.data();
  context.channel.run(std::move(call), nullptr);
  if (stretches > 0)
    stretched.join(array);
  else if (shared && !array.empty())
    std::memcpy(array.data(), there.data(), array.size());
  context.shown[static_cast<std::size_t>(context.rank)] = array.data();
  context.barrier.arrive_and_wait();
  const void* const first = context.shown[0];
  if (!array.empty()) CHECK(std::memcmp(array.data(), first, array.size()) == 0);
  context.barrier.arrive_and_wait();
  const auto got = load(one.dtype, array);
  for (std::size_t i = 0; i < one.count; ++i)
    CHECK(right(one.dtype, one.op, got[i], expected(one.dtype, one.op, ranks, context.size, i)));
}

bool staged(RankContext& context) { return context.node->mailbox(context.node->rank(), 0).staging != kPrivate; }

void layout(const std::vector<int>& host_of) {
  ChannelConfig config;
  config.segment_bytes = 1 << 10;
  on_hosts(host_of, config, [&](RankContext& context, Links&) {
    const int host = host_of[static_cast<std::size_t>(context.rank)];
    const auto all = [&](bool shared) {
      int turn = 0;
      for (const std::string_view name : algorithm_names(Collective::allreduce)) {
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{5'003}, std::size_t{60'013}}) {
          const Case one{
              "two_level:" + std::string(name), DType::float32, ++turn % 2 ? Op::sum : Op::average, count, {}};
          run(context, one, shared);
          run(context, one, shared, static_cast<std::size_t>(1 + turn % 7 * turn));
        }
      }
    };
    // Nothing is copied in: no rank has allocated staging memory.
    all(true);
    CHECK(!staged(context));
    for (std::size_t d = 0; d < kNumbers; ++d) {
      for (const Op op : kElementOps) run(context, {"two_level:ring", static_cast<DType>(d), op, 1'009, {}}, true);
    }
    run(context, {"two_level:circulant", DType::float32, Op::sum, 5'003, find_wire("float16")}, true);
    CHECK(!staged(context));
    all(host == host_of[0]);     // arrays are shared on one host only
    all(context.rank % 2 == 0);  // shared on some ranks of a host
    all(true);
  });
  std::printf("%zu ranks: ok\n", host_of.size());
  std::fflush(stdout);
}

}  // namespace

int main() {
  for (const auto& host_of : kHostLayouts) layout(host_of);
  std::puts("two levels of shared arrays: passed");
}
