// Tests weights in shared memory that any rank changes: rules against plain loops, lost updates,
// gathering, clocks, deaths.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "check.hpp"
#include "kernels/kernels.hpp"
#include "param_server/clocks.hpp"
#include "param_server/shard.hpp"
#include "processes.hpp"
#include "random.hpp"
#include "shm/arena.hpp"

using namespace ringcomm;
using namespace ringcomm::store;
using kernels::UpdateJob;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

template <class T>
std::vector<T> drawn(Random& random, std::size_t count) {
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(static_cast<double>(below(random, 2001)) / 1000 - 1);
  return values;
}

// One element in double, updated as the papers define it.
struct Plain {
  double x, a = 0, b = 0;
  int step = 0;
  void update(Rule rule, const RuleOptions& o, double g, double pulled, bool compensated) {
    ++step;
    g *= o.maximize ? -o.scale : o.scale;
    if (compensated) g += o.compensate * g * g * (x - pulled);
    if (!o.decoupled) g += o.weight_decay * x;
    if (rule == Rule::sgd) {
      if (o.momentum == 0) {
        x -= o.lr * g;
        return;
      }
      a = step == 1 ? g : o.momentum * a + (1 - o.dampening) * g;
      x -= o.lr * (o.nesterov ? g + o.momentum * a : a);
    } else if (rule == Rule::adam) {
      if (o.decoupled) x *= 1 - o.lr * o.weight_decay;
      a = o.beta1 * a + (1 - o.beta1) * g;
      b = o.beta2 * b + (1 - o.beta2) * g * g;
      const double mean = a / (1 - std::pow(o.beta1, step)), square = b / (1 - std::pow(o.beta2, step));
      x -= o.lr * mean / (std::sqrt(square) + o.eps);
    } else if (rule == Rule::adagrad) {
      a += g * g;
      x -= o.lr / (1 + (step - 1) * o.lr_decay) * g / (std::sqrt(a) + o.eps);
    } else {
      a = o.beta2 * a + (1 - o.beta2) * g * g;
      b = o.momentum * b + g / (std::sqrt(a) + o.eps);
      x -= o.lr * b;
    }
  }
};

std::vector<std::pair<Rule, RuleOptions>> all_rules() {
  std::vector<std::pair<Rule, RuleOptions>> rules;
  for (const Rule rule : {Rule::sgd, Rule::adam, Rule::adagrad, Rule::rmsprop}) {
    for (int flags = 0; flags < 32; ++flags) {
      RuleOptions o;
      o.lr = 0.05;
      o.eps = 1e-6;
      o.momentum = flags & 1 ? 0.9 : 0;
      o.weight_decay = flags & 2 ? 0.1 : 0;
      o.nesterov = rule == Rule::sgd && flags & 4;
      o.decoupled = rule == Rule::adam && flags & 4;
      o.maximize = flags & 8;
      o.dampening = flags & 16 && !o.nesterov ? 0.3 : 0;
      o.lr_decay = flags & 4 ? 0.01 : 0;
      o.compensate = flags & 16 ? 0.04 : 0;
      o.scale = flags & 2 ? 0.5 : 1;
      rules.emplace_back(rule, o);
    }
  }
  return rules;
}

template <class T>
void rules_are_those_of_the_papers(double tolerance) {
  Random random(7);
  constexpr std::size_t n = 37;
  for (const auto& [rule, options] : all_rules()) {
    const bool compensated = options.compensate != 0;
    std::vector<T> x = drawn<T>(random, n), a(n), b(n), result(n);
    const std::vector<T> pulled = drawn<T>(random, n);
    std::vector<Plain> plain;
    for (const T value : x) plain.push_back({static_cast<double>(value)});
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const std::vector<T> g = drawn<T>(random, n);
      kernels::update(UpdateJob<T>{rule, &options, step, x.data(), a.data(), b.data(), g.data(),
                                   compensated ? pulled.data() : nullptr, result.data(), n});
      for (std::size_t i = 0; i < n; ++i) {
        plain[i].update(rule, options, static_cast<double>(g[i]), static_cast<double>(pulled[i]), compensated);
        CHECK(std::abs(static_cast<double>(x[i]) - plain[i].x) < tolerance);
        CHECK(result[i] == x[i]);
      }
    }
  }
}

void every_instruction_set_gives_equal_bits() {
  Random random(9);
  constexpr std::size_t n = 1003;
  const std::vector<float> start = drawn<float>(random, n), g = drawn<float>(random, n);
  for (const auto& [rule, options] : all_rules()) {
    std::vector<float> first;
    for (const char* const set : {"generic", "avx2", "avx512", "neon"}) {
      if (!kernels::use_instruction_set(set)) continue;
      std::vector<float> x = start, a(n), b(n);
      for (std::uint64_t step = 1; step <= 3; ++step) {
        kernels::update(
            UpdateJob<float>{rule, &options, step, x.data(), a.data(), b.data(), g.data(), nullptr, nullptr, n});
      }
      if (first.empty()) first = x;
      CHECK(std::memcmp(first.data(), x.data(), n * sizeof(float)) == 0);
    }
  }
}

// Ranks that share a store: views of shards in the first rank's arena.
template <class T>
struct World {
  static constexpr bool kWide = sizeof(T) == sizeof(double);
  World(int size, std::size_t count, std::size_t states = 0, std::size_t sums = 0) : nodes(Node::for_threads(size)) {
    for (int owner = 0; owner < size; ++owner) {
      Node& node = *nodes[static_cast<std::size_t>(owner)];
      offsets.push_back(node.allocate(Shard::bytes(count, kWide, states, sums)));
    }
    clocks_at = nodes[0]->allocate(Clocks::bytes(size));
    std::memset(nodes[0]->at(0, clocks_at), 0, Clocks::bytes(size));
    this->count = count, this->states = states, this->sums = sums;
    const std::vector<T> zeros(count);
    for (int owner = 0; owner < size; ++owner) shard(owner, owner).make(zeros.data());
  }
  Shard shard(int rank, int owner = 0) {
    const std::shared_ptr<Node>& node = nodes[static_cast<std::size_t>(rank)];
    std::byte* const memory = node->at(owner, offsets[static_cast<std::size_t>(owner)]);
    return {memory, owner, count, kWide, states, sums, node, rank};
  }
  Clocks clocks(int rank) {
    Node& node = *nodes[static_cast<std::size_t>(rank)];
    return {node.at(0, clocks_at), node.size(), &node};
  }
  std::vector<T> weights(int owner = 0) {
    std::vector<T> out(count);
    shard(0, owner).apply(Rule::get, {}, {0, count}, nullptr, nullptr, out.data());
    return out;
  }
  std::vector<std::shared_ptr<Node>> nodes;
  std::vector<std::uint64_t> offsets;
  std::uint64_t clocks_at;
  std::size_t count, states;
  std::size_t sums;
};

void no_update_is_lost() {
  for (int size = 1; size <= 9; ++size) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, 3 * Shard::kStripe / sizeof(float) + 5}) {
      World<float> world(size, count);
      const int rounds = kSanitized ? 20 : 100;
      on_ranks(size, [&](int rank) {
        Shard shard = world.shard(rank);
        const std::vector<float> ones(count, 1.0f);
        RuleOptions add;
        for (int i = 0; i < rounds; ++i) shard.apply(Rule::add, add, {0, count}, ones.data(), nullptr, nullptr);
      });
      for (const float value : world.weights()) CHECK(value == static_cast<float>(size * rounds));
      CHECK(count == 0 || world.shard(0).version() == static_cast<std::uint64_t>(size * rounds));
    }
  }
}

void parts_and_results_are_where_they_belong() {
  Random random(3);
  const std::size_t count = 2 * Shard::kStripe / sizeof(double) + 77;
  World<double> world(3, count);
  std::vector<double> mine(count);
  for (int i = 0; i < 50; ++i) {
    const std::size_t first = below(random, count), length = below(random, count - first + 1);
    const std::vector<double> values = drawn<double>(random, length);
    std::vector<double> after(length);
    RuleOptions half;
    half.scale = 0.5;
    world.shard(i % 3).apply(Rule::add, half, {first, length}, values.data(), nullptr, after.data());
    for (std::size_t k = 0; k < length; ++k) mine[first + k] += 0.5 * values[k];
    CHECK(std::equal(after.begin(), after.end(), mine.begin() + static_cast<std::ptrdiff_t>(first)));
  }
  CHECK(world.weights() == mine);
}

void attraction_and_averaging_keep_the_sum() {
  constexpr std::size_t count = 2 * Shard::kStripe / sizeof(double) + 3;
  for (const int size : {2, 3, 5}) {
    World<double> world(size, count);
    std::vector<std::vector<double>> replicas(static_cast<std::size_t>(size));
    on_ranks(size, [&](int rank) {
      std::vector<double>& x = replicas[static_cast<std::size_t>(rank)];
      x.assign(count, 1024.0 * (rank + 1));
      RuleOptions pull;
      pull.alpha = 0.25;
      Shard centre = world.shard(rank);
      for (int i = 0; i < 10; ++i) centre.apply(Rule::elastic, pull, {0, count}, nullptr, nullptr, x.data());
    });
    double sum = world.weights()[count - 1];
    for (const auto& x : replicas) sum += x[count - 1];
    CHECK(std::abs(sum - 1024.0 * size * (size + 1) / 2) < 1e-6);

    for (int owner = 0; owner < size; ++owner) {
      const std::vector<double> x(count, 64.0 * owner);
      world.shard(0, owner).apply(Rule::put, {}, {0, count}, x.data(), nullptr, nullptr);
    }
    on_ranks(size, [&](int rank) {
      Shard mine = world.shard(rank, rank);
      Random random(static_cast<unsigned>(rank));
      for (int i = 0; i < 20; ++i) {
        Shard other = world.shard(rank, static_cast<int>(below(random, static_cast<std::size_t>(size))));
        mine.average_with(other);
      }
    });
    for (const std::size_t at : {std::size_t{0}, count - 1}) {
      double total = 0;
      for (int owner = 0; owner < size; ++owner) total += world.weights(owner)[at];
      CHECK(std::abs(total - 64.0 * size * (size - 1) / 2) < 1e-9);
    }
  }
}

// Adds numbers whose sum depends on the order: it is the order of ranks, in whatever order they
// arrive.
void adds_in_the_order_of_ranks() {
  constexpr std::size_t count = Shard::kStripe / sizeof(float) + 9;
  constexpr int kSteps = 8;
  for (int size = 1; size <= 6; ++size) {
    World<float> world(size, count, 0, static_cast<std::size_t>(size));
    const auto value = [](int rank, std::uint64_t step) {
      Random random(100 * static_cast<std::uint64_t>(rank) + step);
      return std::ldexp(static_cast<float>(below(random, 1000)) - 500.0f, static_cast<int>(below(random, 40)));
    };
    on_ranks(size, [&](int rank) {
      Shard shard = world.shard(rank);
      Clocks clocks = world.clocks(rank);
      RuleOptions sgd;
      sgd.lr = -1;
      const Gathering how{size, true, static_cast<std::size_t>(rank)};
      Random random(static_cast<std::uint64_t>(rank));
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        const std::vector<float> gradient(count, value(rank, step));
        std::this_thread::sleep_for(std::chrono::microseconds(below(random, 200)));
        while (shard.gather(how, step, Rule::sgd, sgd, gradient.data(), clocks) == Arrival::full)
          std::this_thread::yield();
        while (shard.group() <= step) std::this_thread::yield();
      }
    });
    float expected = 0;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      float sum = 0;
      for (int rank = 0; rank < size; ++rank) sum += value(rank, step);
      expected += sum * static_cast<float>(1.0 / size);
    }
    for (const float weight : world.weights()) CHECK(weight == expected);
  }
}

void gathers_as_many_as_are_asked_for() {
  constexpr std::size_t count = Shard::kStripe / sizeof(float) + 9;
  for (int size = 1; size <= 6; ++size) {
    for (int many = 1; many <= size; ++many) {
      World<float> world(size, count, 0, 1);
      constexpr int kRounds = 12;
      on_ranks(size, [&](int rank) {
        Shard shard = world.shard(rank);
        Clocks clocks = world.clocks(rank);
        const std::vector<float> ones(count, 1.0f);
        RuleOptions sgd;
        sgd.lr = -1;
        const Gathering how{many, false};
        for (std::uint64_t i = 0; i < kRounds; ++i) {
          while (shard.gather(how, i, Rule::sgd, sgd, ones.data(), clocks) == Arrival::full) std::this_thread::yield();
        }
        clocks.set(rank, Clocks::kFinished);
        shard.apply_if_complete(how, Rule::sgd, sgd, clocks);
        CHECK(clocks.wait(-1, Clocks::kFinished, 60 * kSecond));
        shard.apply_if_complete(how, Rule::sgd, sgd, clocks);
      });
      const std::uint64_t groups = world.shard(0).group();
      const auto all = static_cast<std::uint64_t>(size * kRounds), exactly = all / static_cast<std::uint64_t>(many);
      CHECK(groups >= exactly && groups <= all);  // fewer gradients form a group once ranks have finished
      // each update is a mean of ones
      for (const float value : world.weights()) CHECK(value == static_cast<float>(groups));
    }
  }
}

void late_gradients_are_dropped() {
  World<float> world(3, 4, 0, true);
  const Gathering first_two{2, true};
  RuleOptions sgd;
  sgd.lr = 1;
  const float g[4] = {1, 2, 3, 4};
  const auto push = [&](int rank, std::uint64_t clock) {
    Clocks clocks = world.clocks(rank);
    return world.shard(rank).gather(first_two, clock, Rule::sgd, sgd, g, clocks);
  };
  CHECK(push(0, 0) == Arrival::gathered);
  CHECK(push(1, 0) == Arrival::applied);
  CHECK(push(2, 0) == Arrival::dropped);
  CHECK(push(2, 1) == Arrival::gathered && world.shard(0).group() == 1);
  CHECK(world.weights() == std::vector<float>({-1, -2, -3, -4}));
}

void clocks_hold_back_who_is_ahead() {
  for (const int size : {2, 4}) {
    World<float> world(size, 1);
    constexpr int kAhead = 2, kSteps = 50;
    std::atomic<bool> wrong{false};
    on_ranks(size, [&](int rank) {
      Clocks clocks = world.clocks(rank);
      Random random(static_cast<unsigned>(rank));
      for (int step = 1; step <= kSteps; ++step) {
        if (below(random, 4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(random, 300)));
        clocks.set(rank, step);
        CHECK(clocks.wait(-1, step - kAhead, 60 * kSecond));
        if (clocks.least() < step - kAhead) wrong = true;
      }
      clocks.set(rank, Clocks::kFinished);
    });
    CHECK(!wrong && world.clocks(0).live() == 0);
  }
  World<float> world(2, 1);
  CHECK(!world.clocks(0).wait(1, 1, 1'000'000));
}

// Checks that waits for a lock or a clock of a killed rank end.
void the_dead_hold_nothing() {
  ringcomm::testing::Processes processes(2);
  constexpr std::size_t count = Shard::kStripe / sizeof(float);
  processes.start([&](Node& node) {
    node.watch(processes.pidfds(node.rank()));
    const std::size_t nbytes = Shard::bytes(count, false, 0, 0);
    if (node.rank() == 0) {
      const std::uint64_t at =
          node.allocate(nbytes + Clocks::bytes(2));  // the first block of an arena, where the other process looks
      std::memset(node.at(0, at), 0, nbytes + Clocks::bytes(2));
      Clocks clocks(node.at(0, at + nbytes), 2, &node);
      node.mailbox(0, 0).epoch.store(1, std::memory_order_release);
      CHECK(clocks.wait(1, 1, 60 * kSecond));
      CHECK(clocks.wait(1, 2, 60 * kSecond) && clocks.lost() == std::vector<int>{1});
      Shard shard(node.at(0, at), 0, count, false, 0, 0, {std::shared_ptr<Node>(), &node}, 0);
      const std::vector<float> ones(count, 1.0f);
      shard.apply(Rule::add, {}, {0, count}, ones.data(), nullptr, nullptr);
      CHECK(shard.broken() == 1 && shard.version() == 1);
    } else {
      while (node.mailbox(0, 0).epoch.load(std::memory_order_acquire) == 0) std::this_thread::yield();
      std::byte* const base = node.at(0, kHeapBegin);
      CHECK(!reinterpret_cast<Lock*>(base + round_up(sizeof(ShardHeader), 64))->take(&node, 1));
      Clocks(base + nbytes, 2, &node).set(1, 1);
      ::kill(::getpid(), SIGKILL);
    }
  });
  CHECK(processes.end_of(1) == 128 + SIGKILL);
  CHECK(processes.end_of(0) == 0);
}

}  // namespace

int main() {
  the_dead_hold_nothing();  // forks, so it runs before there are threads
  rules_are_those_of_the_papers<float>(2e-5);
  rules_are_those_of_the_papers<double>(1e-12);
  every_instruction_set_gives_equal_bits();
  no_update_is_lost();
  parts_and_results_are_where_they_belong();
  attraction_and_averaging_keep_the_sum();
  gathers_as_many_as_are_asked_for();
  adds_in_the_order_of_ranks();
  late_gradients_are_dropped();
  clocks_hold_back_who_is_ahead();
}
