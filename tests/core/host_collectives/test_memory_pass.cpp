// Tests all-reduce in shared memory: every rank ends with the bits of one reduction in rank order,
// on both paths, after any calls in the same slot. Ranks are processes, then threads, so that a
// race detector sees them.
#include "host_collectives/memory_pass.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <string>

#include "base/error.hpp"
#include "check.hpp"
#include "memory_calls.hpp"
#include "processes.hpp"

using namespace ringcomm;
using ringcomm::testing::Processes;
using ringcomm::testing::run_call;

using Bytes = std::vector<std::byte>;

// A call with the fields that all ranks know; each rank adds its arrays.
struct Plan {
  DType dtype = DType::float32;
  Op op = Op::sum;
  std::size_t count = 0, segment_bytes = 4096;
  bool shared = false, in_place = false;
  kernels::Scale pre, post;
  bool mixed = false;      // only even ranks' arrays are shared
  bool scattered = false;  // arrays are in pieces: shared ones of equal lengths, private ones different on every rank
};

// Returns values whose sums round, so that a wrong operand order shows. There are no NaNs: the
// kernels' tests cover their payloads.
static Bytes values(const Plan& plan, int rank, unsigned seed) {
  Bytes bytes(plan.count * size_of(plan.dtype));
  std::minstd_rand random(seed * 1000 + static_cast<unsigned>(rank) + 1);  // cheap to seed, because there are thousands
  const bool floating = info(plan.dtype).floating;
  if (!floating) {
    const bool boolean = plan.dtype == DType::boolean;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() / 64 % (boolean ? 2 : 256));
    return bytes;
  }
  std::vector<double> numbers(plan.count);
  for (double& number : numbers) {
    number = (static_cast<double>(random()) - 1e9) * 1e-9;
    if (random() / 64 % 4 == 0) number *= 100;
  }
  kernels::cast(plan.dtype, bytes.data(), DType::float64, numbers.data(), plan.count);
  return bytes;
}

// Returns the result of one pass over complete arrays in rank order.
static Bytes expected(const Plan& plan, int size, unsigned seed) {
  std::vector<Bytes> inputs;
  std::vector<const void*> sources;
  for (int rank = 0; rank < size; ++rank) sources.push_back(inputs.emplace_back(values(plan, rank, seed)).data());
  Bytes result(plan.count * size_of(plan.dtype));
  void* const target = result.data();
  kernels::reduce_many(plan.dtype, plan.op, {&target, 1}, sources, plan.count, plan.pre, plan.post);
  return result;
}

// The calls of one rank. `shared`: all ranks' arrays are shared, or (mixed) the even ranks'.
class Caller {
 public:
  Caller(Node& node, int slot) : node_(node), epochs_(node, slot) {}

  Bytes run(const Plan& plan, unsigned seed, std::mt19937* delays = nullptr) {
    Bytes input = values(plan, node_.rank(), seed);
    Bytes output(input.size(), std::byte{0xEE});
    Call call;
    call.dtype = plan.dtype;
    call.op = plan.op;
    call.pre = plan.pre;
    call.post = plan.post;
    call.count = plan.count;
    call.input = input.data();
    call.output = plan.in_place ? input.data() : output.data();
    const bool shared = plan.shared && !(plan.mixed && node_.rank() % 2 == 1);
    if (plan.scattered && input.size() > kPayload)
      return plan.shared ? run_stretches(call, input, output, plan, shared, delays)
                         : run_scattered(call, input, plan, seed, delays);
    std::vector<std::uint64_t> offsets;
    if (shared) {
      call.input = call.output = place(offsets, input);
      if (!plan.in_place) call.output = place(offsets, output);
    }
    run_call(epochs_, call, plan.segment_bytes, delays);
    if (!shared) return plan.in_place ? input : output;
    if (!output.empty()) std::memcpy(output.data(), call.output, output.size());
    if (!plan.in_place && !input.empty()) CHECK(std::memcmp(call.input, input.data(), input.size()) == 0);
    for (const std::uint64_t offset : offsets) node_.free(offset);
    return output;
  }

 private:
  std::byte* place(std::vector<std::uint64_t>& offsets, const Bytes& array) {  // a copy in the arena
    offsets.push_back(node_.allocate(array.size() + 64));
    std::byte* const data = node_.at(node_.rank(), offsets.back());
    if (!array.empty()) std::memcpy(data, array.data(), array.size());
    return data;
  }

  // Runs a call of seven stretches, with lengths that are equal on all ranks. With segments of 1000
  // bytes, odd ranks work in place even if the plan does not.
  Bytes run_stretches(Call call, Bytes& whole, Bytes& output, const Plan& plan, bool shared, std::mt19937* delays) {
    const std::size_t item = size_of(call.dtype);
    const bool in_place = plan.in_place || (plan.segment_bytes == 1000 && node_.rank() % 2 == 1);
    std::vector<std::uint64_t> offsets;
    for (std::size_t i = 0; i < 7; ++i) {
      const std::size_t begin = call.count * i * i / 49, count = call.count * (i + 1) * (i + 1) / 49 - begin;
      std::byte* from = whole.data() + begin * item;
      std::byte* to = output.data() + begin * item;
      if (shared) from = place(offsets, Bytes(from, from + count * item));
      if (shared && !in_place) to = place(offsets, Bytes(to, to + count * item));
      call.fragments.push_back({from, in_place ? from : to, count});
    }
    call.input = call.output = nullptr;
    run_call(epochs_, call, plan.segment_bytes, delays);
    Bytes result = joined(call);
    for (const std::uint64_t offset : offsets) node_.free(offset);
    return result;
  }

  static Bytes joined(const Call& call) {
    Bytes result;
    for (const Fragment& fragment : call.fragments) {
      const auto* const data = static_cast<const std::byte*>(fragment.output);
      result.insert(result.end(), data, data + fragment.count * size_of(call.dtype));
    }
    return result;
  }

  Bytes run_scattered(Call call, const Bytes& whole, const Plan& plan, unsigned seed, std::mt19937* delays) {
    std::minstd_rand random(seed * 100 + static_cast<unsigned>(node_.rank()) + 1);
    const std::size_t item = size_of(call.dtype);
    std::deque<std::pair<Bytes, Bytes>> arrays;
    for (std::size_t done = 0; done < call.count || arrays.empty();) {
      const std::size_t most = 1 + random() / 64 % 3000,
                        count = random() / 64 % 8 == 0 ? 0 : std::min(call.count - done, most);
      const auto from = whole.begin() + static_cast<std::ptrdiff_t>(done * item);
      const bool in_place = random() / 64 % 2 == 0;
      auto& [input, output] =
          arrays.emplace_back(Bytes(from, from + static_cast<std::ptrdiff_t>(count * item)), Bytes());
      output.resize(in_place ? 0 : count * item);
      call.fragments.push_back({input.data(), in_place ? input.data() : output.data(), count});
      done += count;
    }
    call.input = call.output = nullptr;
    run_call(epochs_, call, plan.segment_bytes, delays);
    return joined(call);
  }

  Node& node_;
  Epochs epochs_;
};

static Plan random_plan(std::mt19937& random, int size) {
  const auto p = static_cast<std::size_t>(size);
  const std::size_t counts[] = {0, 1, p - 1, p, p + 1, 64 * p, 1009, 10007, 30000};
  const std::size_t segments[] = {0, 64, 1000, 4096, 65536, 512 << 10};
  Plan plan;
  plan.dtype = static_cast<DType>(random() % kNumbers);
  plan.op = kElementOps[1 + random() % 4];
  plan.count = counts[random() % std::size(counts)];
  plan.segment_bytes = segments[random() % std::size(segments)];
  if (plan.segment_bytes <= 64) plan.count = std::min<std::size_t>(plan.count, 1009);
  plan.shared = random() % 2 == 0;
  plan.in_place = random() % 2 == 0;
  plan.mixed = random() % 4 == 0;
  plan.scattered = random() % 3 == 0;
  if (plan.op == Op::sum && random() % 3 == 0) plan.post.divisor = size;
  if (info(plan.dtype).floating && random() % 4 == 0) plan.pre.factor = 0.3;
  return plan;
}

// Makes many calls back to back in one slot, of all kinds mixed, with random delays of ranks.
static void mixed_calls(int size, int calls) {
  const auto nodes = Node::for_threads(size);
  std::barrier<> ready(size);
  on_ranks(size, [&](int rank) {
    std::mt19937 common(static_cast<unsigned>(size)), delays(static_cast<unsigned>(100 + rank));
    Caller caller(*nodes[static_cast<std::size_t>(rank)], 4);
    ready.arrive_and_wait();
    for (int index = 0; index < calls; ++index) {
      const Plan plan = random_plan(common, size);
      const auto seed = static_cast<unsigned>(index);
      CHECK(caller.run(plan, seed, &delays) == expected(plan, size, seed));
    }
  });
}

// Makes one call of every dtype, op and path, at counts around the slices' edges.
static void every_kind(int size) {
  const auto nodes = Node::for_threads(size);
  std::barrier<> ready(size);
  const auto p = static_cast<std::size_t>(size);
  on_ranks(size, [&](int rank) {
    Caller caller(*nodes[static_cast<std::size_t>(rank)], 0);
    ready.arrive_and_wait();
    unsigned seed = 0;
    for (std::size_t dtype = 0; dtype < kNumbers; ++dtype) {
      for (const Op op : {Op::sum, Op::min, Op::max, Op::product}) {
        for (const bool shared : {false, true}) {
          for (const std::size_t count : {std::size_t{0}, p - 1, p + 1, 64 * p + 1, std::size_t{3001}}) {
            const Plan plan{static_cast<DType>(dtype), op, count, 1024, shared, seed % 2 == 0, {}, {}};
            ++seed;
            CHECK(caller.run(plan, seed) == expected(plan, size, seed));
          }
        }
      }
    }
  });
}

// Compares with plain arithmetic, without the kernels: sums of integers are exact.
static void whole_numbers() {
  for (const bool shared : {false, true}) {
    const auto nodes = Node::for_threads(3);
    std::barrier<> ready(3);
    on_ranks(3, [&](int rank) {
      Node& node = *nodes[static_cast<std::size_t>(rank)];
      Epochs epochs(node, 0);
      const std::size_t count = 100'003;
      const std::uint64_t offset = node.allocate(count * sizeof(double));
      std::vector<double> ordinary(count);
      auto* const data = shared ? reinterpret_cast<double*>(node.at(rank, offset)) : ordinary.data();
      for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<double>(i) * (rank + 1);
      ready.arrive_and_wait();
      Call call;
      call.dtype = DType::float64;
      call.input = call.output = data;
      call.count = count;
      run_call(epochs, call, 256 << 10);
      for (std::size_t i = 0; i < count; ++i) CHECK(data[i] == static_cast<double>(i) * 6);
      ready.arrive_and_wait();  // the arrays belong to the callers, so they must exist until all ranks are done
    });
  }
}

// Runs two streams of calls in one arena at the same time: slots do not affect each other.
static void slots_are_apart() {
  const auto nodes = Node::for_threads(2);
  std::barrier<> ready(4);
  on_ranks(4, [&](int thread) {
    const int rank = thread % 2, slot = thread / 2 * 2;
    std::mt19937 common(static_cast<unsigned>(slot)), delays(static_cast<unsigned>(thread));
    Caller caller(*nodes[static_cast<std::size_t>(rank)], slot);
    ready.arrive_and_wait();
    for (unsigned seed = 0; seed < 100; ++seed) {
      const Plan plan = random_plan(common, 2);
      CHECK(caller.run(plan, seed, &delays) == expected(plan, 2, seed));
    }
  });
}

static void across_processes(int size) {
  Processes ranks(size);
  ranks.start([&](Node& node) {
    node.watch(ranks.pidfds(node.rank()));  // if a rank's check fails, the other ranks' waits end
    std::mt19937 common(9), delays(static_cast<unsigned>(node.rank()));
    Caller caller(node, 0);
    for (unsigned seed = 0; seed < 150; ++seed) {
      const Plan plan = random_plan(common, size);
      CHECK(caller.run(plan, seed, &delays) == expected(plan, size, seed));
    }
    const Plan large{DType::float32, Op::sum, 3'000'001, 512 << 10, false, true, {}, {}};
    CHECK(caller.run(large, 5) == expected(large, size, 5));
  });
  for (int rank = 0; rank < size; ++rank) CHECK(ranks.end_of(rank) == 0);
}

// Kills a rank in the middle of a call: the other ranks get an error that names it.
static void a_death_in_mid_call(int size, int victim) {
  Processes ranks(size);
  ranks.start([&](Node& node) {
    node.watch(ranks.pidfds(node.rank()));
    Epochs epochs(node, 0);
    std::vector<float> data(1 << 20, 1.0f);
    Call call;
    call.dtype = DType::float32;
    call.input = call.output = data.data();
    call.count = data.size();
    run_call(epochs, call, 64 << 10);
    try {
      run_call(epochs, call, 64 << 10, nullptr, node.rank() == victim ? 9 : 0);
      CHECK(!"the call must fail");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::peer_lost);
      CHECK(std::find(error.ranks().begin(), error.ranks().end(), victim) != error.ranks().end());
    }
  });
  for (int rank = 0; rank < size; ++rank) CHECK(ranks.end_of(rank) == (rank == victim ? 128 + SIGKILL : 0));
}

// Refuses staging memory on one rank: all ranks get the error, no data has moved, and the next
// calls work.
static void a_refusal_is_everybodys() {
  Processes ranks(3);
  ranks.start(
      [&](Node& node) {
        node.watch(ranks.pidfds(node.rank()));
        Caller caller(node, 0);
        const Plan small{DType::int32, Op::sum, 100, 64 << 10, false, false, {}, {}};
        const Plan large{DType::int32, Op::sum, 100'000, 64 << 10, false, false, {}, {}};
        CHECK(caller.run(small, 1) == expected(small, 3, 1));
        rlimit limit{};
        CHECK(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
        for (unsigned attempt = 0; attempt < 20; ++attempt) {
          const rlimit little{64 << 10, limit.rlim_max};
          if (node.rank() == 1) CHECK(::setrlimit(RLIMIT_FSIZE, &little) == 0);
          try {
            caller.run(large, attempt);
            CHECK(!"one rank has no memory");
          } catch (const Error& error) {
            CHECK(error.kind() == ErrorKind::invalid && error.ranks() == std::vector<int>{1});
            CHECK(std::string(error.what()).find("rank 1 ") != std::string::npos);
          }
          if (node.rank() == 1) CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
          CHECK(caller.run(small, attempt) == expected(small, 3, attempt));
        }
        CHECK(caller.run(large, 7) == expected(large, 3, 7));
      },
      [](int) { CHECK(::signal(SIGXFSZ, SIG_IGN) != SIG_ERR); });
  for (int rank = 0; rank < 3; ++rank) CHECK(ranks.end_of(rank) == 0);
}

int main() {
  for (int size = 1; size <= 4; ++size) across_processes(size);
  for (int size = 2; size <= 4; ++size) a_death_in_mid_call(size, size == 3 ? 0 : size - 1);
  a_refusal_is_everybodys();
  whole_numbers();
  slots_are_apart();
  for (int size = 1; size <= 9; ++size) {
    every_kind(size);
    mixed_calls(size, 60);
  }
}
