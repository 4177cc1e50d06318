// Tests the worker: a waiting thread gives its turns, and no submitted operation is lost between
// the threads.
#include "engine/worker/worker.hpp"

#include <atomic>
#include <random>

#include "base/clock.hpp"
#include "check.hpp"
#include "engine/operation.hpp"

using namespace ringcomm;
using namespace std::chrono_literals;

namespace {

// Operations that complete some turns after their submission. Checks that one thread at a time
// gives turns.
class Countdown final : public Source {
 public:
  explicit Countdown(bool moving) : moving_(moving) {}

  std::shared_ptr<Operation> submit(int turns) {
    auto operation = std::make_shared<Operation>("countdown");
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back(turns, operation);
    return operation;
  }

  Progress turn() override {
    CHECK(!busy_.exchange(true));
    if (std::this_thread::get_id() == counted.load()) ++turns;
    std::vector<std::shared_ptr<Operation>> over;
    bool pending = false;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [left, operation] : waiting_) {
        if (--left <= 0) over.push_back(operation);
      }
      std::erase_if(waiting_, [](const auto& waiter) { return waiter.first <= 0; });
      pending = !waiting_.empty();
    }
    for (const auto& operation : over) operation->finish();
    CHECK(busy_.exchange(false));
    return !over.empty() ? Progress::moved : pending ? Progress::blocked : Progress::done;
  }
  bool moving_data() override { return moving_; }

  std::atomic<std::thread::id> counted;
  std::atomic<int> turns{0};  // turns that the `counted` thread has given

 private:
  const bool moving_;
  std::atomic<bool> busy_{false};
  std::mutex mutex_;
  std::vector<std::pair<int, std::shared_ptr<Operation>>> waiting_;
};

struct Set {
  explicit Set(bool moving = false)
      : worker(std::make_shared<Worker>(true)), source(std::make_shared<Countdown>(moving)) {
    worker->add(source);
  }
  ~Set() { worker->remove(source); }
  std::shared_ptr<Operation> submit(int turns, bool soon) {
    auto operation = source->submit(turns);
    worker->wake(soon ? Worker::When::soon : Worker::When::now);
    return operation;
  }
  const std::shared_ptr<Worker> worker;
  const std::shared_ptr<Countdown> source;
};

void nobody_needs_to_wait() {
  for (const bool soon : {false, true}) {
    Set set;
    for (int i = 0; i < 50; ++i) {
      const auto operation = set.submit(1 + i % 3, soon);
      const std::int64_t begin = now_ns();
      while (!operation->done()) {
        CHECK(now_ns() - begin < 20'000'000'000);
        std::this_thread::sleep_for(10us);
      }
    }
  }
}

void the_waiter_gives_turns() {
  Set set;
  set.source->counted = std::this_thread::get_id();
  // the worker's thread, which sleeps between turns, takes a second for this number
  const auto operation = set.submit(500, true);
  CHECK(wait_for(*operation, *set.worker, 60, nullptr));
  CHECK(set.source->turns.load() > 0);
}

// Runs waiters, submitters and pollers on several threads: all operations complete, and turns never
// overlap.
void many_threads(bool moving) {
  Set set(moving);
  on_ranks(4, [&](int thread) {
    std::minstd_rand random(static_cast<unsigned>(thread) + 1);
    for (int i = 0; i < 300; ++i) {
      std::vector<std::shared_ptr<Operation>> operations;
      for (unsigned k = random() / 64 % 8; k > 0; --k) {
        operations.push_back(set.submit(static_cast<int>(random() / 64 % 5), random() / 64 % 4 != 0));
      }
      for (const auto& operation : operations) {
        if (thread == 3) {
          while (!operation->done()) {
            if (random() / 64 % 8 == 0) set.worker->hurry();
            std::this_thread::yield();
          }
        } else if (random() / 64 % 8 == 0) {
          wait_for(*operation, *set.worker, 1e-5, nullptr);
        } else {
          CHECK(wait_for(*operation, *set.worker, 60, nullptr));
        }
      }
    }
  });
}

void who_waits_for_something_else_leaves_the_rest_to_the_thread() {
  Set set;
  const auto late = set.submit(300, false), early = set.submit(1, false);
  CHECK(wait_for(*early, *set.worker, 60, nullptr));
  CHECK(late->wait(60));
}

void an_end_while_somebody_waits() {
  auto worker = std::make_shared<Worker>(true);
  const auto source = std::make_shared<Countdown>(false);
  worker->add(source);
  const auto operation = source->submit(1 << 30);
  worker->wake();
  std::thread waiter([&] { CHECK(!wait_for(*operation, *worker, 0.3, nullptr)); });
  std::this_thread::sleep_for(20ms);
  worker->stop();
  waiter.join();
}

void time_runs_out() {
  Set set;
  const auto operation = set.submit(1 << 30, true);
  CHECK(!set.worker->assist([&] { return operation->done(); }, 0) || !operation->done());
  CHECK(!wait_for(*operation, *set.worker, 0.02, nullptr));
}

// Waits for other hosts: stays awake for the given time, whatever the previous waits did, and
// sleeps after that.
void a_wait_for_other_hosts() {
  constexpr std::int64_t kAwake = 2'000'000;
  Backoff backoff(100us);
  for (int wait = 0; wait < 3; ++wait) {
    backoff.reset();
    backoff.yield_immediately(kAwake);
    const std::int64_t begun = now_ns();
    while (backoff.next() == 0ns) backoff.yield_immediately(kAwake);  // each poll may request it again
    CHECK(now_ns() - begun >= kAwake);
    for (int nap = 0; nap < 10; ++nap) {
      const auto sleep = backoff.next();
      CHECK(sleep > 0ns && sleep <= 100us);
    }
  }
}

}  // namespace

int main() {
  a_wait_for_other_hosts();
  nobody_needs_to_wait();
  the_waiter_gives_turns();
  many_threads(false);
  many_threads(true);
  who_waits_for_something_else_leaves_the_rest_to_the_thread();
  an_end_while_somebody_waits();
  time_runs_out();
}
