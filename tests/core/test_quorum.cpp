// Operations of a quorum: what ranks give counts once, whoever comes and whoever is late, and all ranks end.
#include <chrono>
#include <thread>

#include "engine/pending.hpp"
#include "engine/quorum.hpp"
#include "engine_ranks.hpp"

using namespace ringcomm;

namespace {

using Values = std::vector<float>;

// One rank's part of an operation of a quorum.
struct Member {
  Rank& rank;
  Values array;
  PendingPtr standing;

  Member(Rank& r, std::size_t count, int least, Standing::Rule rule) : rank(r), array(count) {
    Named request;
    request.call.dtype = DType::float32;
    request.call.op = Op::sum;
    request.call.name = "quorum";
    request.call.input = request.call.output = array.data();
    request.call.count = count;
    standing = rank.engine->stand(0, request, least, rule);
    CHECK(!meet("all stand"));
  }
  std::optional<Error> meet(const std::string& name) {
    Named barrier;
    barrier.call.collective = Collective::barrier;
    barrier.call.name = name;
    return rank.outcome(rank.engine->submit(0, barrier));
  }
  Standing& it() { return *standing->stand_in_round->standing; }
  // Comes, and takes what there is. False: the job has ended.
  bool exchange(const Values* given, Values& out, Standing::Taken& taken) {
    if (const Op_ op = rank.engine->come(0, *standing, given ? given->data() : nullptr)) {
      if (rank.outcome(op)) return false;
    } else {
      while (!it().has_results()) {
        if (wait_for(*standing, *rank.worker, 1e-3, nullptr)) return false;
      }
    }
    taken = it().take(out.data());
    CHECK(taken.rounds > 0);
    return true;
  }
  void end() {
    rank.engine->step_aside(0, *standing);
    CHECK(!meet("all end"));
    rank.engine->close(0, standing);
    CHECK(rank.engine->pending().empty());
    rank.engine->leave();
  }
};

struct Setting {
  int size, least;
  bool threaded, on_host;
  std::uint64_t seed;
};

void with_ranks(const Setting& how, std::size_t count, Standing::Rule rule,
                const std::function<void(Member&, Random&)>& body) {
  const auto hub = make_threads_hub(how.size);
  const auto nodes = how.on_host ? Node::for_threads(how.size)
                                 : std::vector<std::shared_ptr<Node>>(static_cast<std::size_t>(how.size));
  std::barrier over(how.size);
  on_ranks(how.size, [&](int me) {
    EngineConfig config;
    if (how.seed % 2) config.cache_capacity = 1;
    Rank rank(hub, me, how.size, config, how.threaded, nodes[static_cast<std::size_t>(me)]);
    Member member(rank, count, how.least, rule);
    Random random(how.seed * 100 + static_cast<std::uint64_t>(me));
    body(member, random);
    over.arrive_and_wait();
  });
}

void pause(Random& random) {
  if (below(random, 3) == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(random, 1500)));
}

// Whatever ranks give reaches every rank once, those that come least often too.
void sums(const Setting& how) {
  constexpr std::size_t kCount = 700;
  std::vector<int> steps(static_cast<std::size_t>(how.size));
  Random shared(how.seed);
  float all = 0;
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    steps[rank] = static_cast<int>(below(shared, 25));
    all += static_cast<float>(steps[rank] * (steps[rank] + 1) / 2);
  }
  with_ranks(how, kCount, Standing::Rule::add, [&](Member& member, Random& random) {
    Values given(kCount), out(kCount), total(kCount);
    Standing::Taken taken;
    const auto take = [&](const Values* what) {
      std::fill(out.begin(), out.end(), 0.0F);
      CHECK(member.exchange(what, out, taken));
      for (std::size_t i = 0; i < kCount; ++i) total[i] += out[i];
    };
    for (int step = 1; step <= steps[static_cast<std::size_t>(member.rank.rank)]; ++step) {
      pause(random);
      std::fill(given.begin(), given.end(), static_cast<float>(step));
      take(&given);
    }
    for (int last = 0; last < 2; ++last) take(nullptr);  // late or not, its last gift has gone then
    member.rank.engine->step_aside(0, *member.standing);
    CHECK(!member.meet("all have given"));
    std::fill(out.begin(), out.end(), 0.0F);
    member.it().take(out.data());
    for (std::size_t i = 0; i < kCount; ++i) CHECK(total[i] + out[i] == all);
    member.end();
  });
}

// If all must come, a round is an all-reduce.
void of_all(Setting how) {
  how.least = how.size;
  with_ranks(how, 5, Standing::Rule::add, [&](Member& member, Random& random) {
    Values given(5), out(5);
    Standing::Taken taken;
    for (int step = 0; step < 20; ++step) {
      pause(random);
      std::fill(given.begin(), given.end(), static_cast<float>(member.rank.rank + step));
      CHECK(member.exchange(&given, out, taken));
      CHECK(taken.rounds == 1);
      const auto p = static_cast<float>(how.size);
      for (const float x : out) CHECK(x == p * (p - 1) / 2 + p * static_cast<float>(step));
    }
    member.end();
  });
}

// Each rank's last number stands at its place; a rank knows whether its own was in.
void last_ones(const Setting& how) {
  const auto count = static_cast<std::size_t>(how.size);
  with_ranks(how, count, Standing::Rule::put, [&](Member& member, Random& random) {
    const auto me = static_cast<std::size_t>(member.rank.rank);
    Values given(count), out(count), before(count);
    Standing::Taken taken;
    for (int step = 1; step <= 20; ++step) {
      pause(random);
      given[me] = static_cast<float>(step);
      CHECK(member.exchange(&given, out, taken));
      CHECK(taken.included ? out[me] == given[me] : out[me] < given[me]);
      for (std::size_t i = 0; i < count; ++i) CHECK(out[i] >= before[i]);
      before = out;
    }
    member.end();
  });
}

// A rank leaves while it stands, and others come: they are told, and do not wait.
void leaving(const Setting& how) {
  with_ranks(how, 3, Standing::Rule::add, [&](Member& member, Random& random) {
    Values given(3, 1.0F), out(3);
    Standing::Taken taken;
    for (int step = 0; member.rank.rank != how.size - 1 || step < 4; ++step) {
      pause(random);
      try {
        if (!member.exchange(&given, out, taken)) break;
      } catch (const Error&) {
        break;
      }
    }
    member.rank.engine->leave();
  });
}

void quorums() {
  const std::vector<char> nobody(4, 0);
  Quorum two(2, 4), all(4, 4), drawn(0, 4);
  CHECK(!two.met({1, 0, 0, 0}, nobody) && two.met({1, 0, 0, 1}, nobody));
  CHECK(two.met({1, 0, 0, 0}, {0, 1, 1, 1}));
  CHECK(!all.met({1, 1, 1, 0}, nobody));
  all.step_aside(3);
  CHECK(all.met({1, 1, 1, 0}, nobody));
  CHECK(all.comes(3, 0) && !all.met({1, 1, 1, 0}, nobody));
  std::vector<int> often(4, 0);
  for (std::uint64_t round = 1; round <= 400; ++round) {
    for (std::size_t rank = 0; rank < 4; ++rank) {
      std::vector<char> here(4, 0);
      here[rank] = 1;
      often[rank] += drawn.met(here, nobody);
    }
    drawn.decided(round);
    CHECK(!drawn.comes(1, round - 1) && drawn.comes(1, round));
  }
  CHECK(often[0] + often[1] + often[2] + often[3] == 400);
  for (const int times : often) CHECK(times > 50);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t trials = argc > 1 ? std::stoul(argv[1]) : 3;
  quorums();
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    for (int size = 1; size <= 5; ++size) {
      for (const int least : {0, 1, 2}) {
        for (const bool on_host : {false, true}) {
          const Setting how{size, least, trial % 3 != 2, on_host, trial};
          sums(how);
          last_ones(how);
          of_all(how);
          leaving(how);
        }
      }
    }
  }
  std::puts("quorums: all passed");
  return 0;
}
