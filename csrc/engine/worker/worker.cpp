// Implements Worker: passes, rests, and callers that assist.
#include "engine/worker/worker.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/caller_wait.hpp"
#include "base/error.hpp"
#include "base/short_sleeps.hpp"
#include "base/wait.hpp"

namespace ringcomm {

namespace {

using Sleep = std::chrono::nanoseconds;
using namespace std::chrono_literals;

// MPI cannot wake a thread, so a waiting thread polls. These intervals limit the cost; one poll
// takes a few microseconds.
constexpr Sleep kMoving = 100us;   // bytes are in flight
constexpr Sleep kAgreeing = 1ms;   // no data moves, but agreement is pending
constexpr Sleep kListening = 4ms;  // nothing is pending

// Numbers of polls, and of yields, before sleeping. The worker's thread works while the caller
// computes, so it does not yield: after a yield it would get the core back only at the kernel's
// next tick. After a sleep it gets the core back as soon as it wakes. A caller that assists does
// yield.
constexpr int kSpins = 64, kYields = 64;

// A caller that assists has nothing else to do, so it polls often: it wakes late by at most 1/kLate
// of its wait.
constexpr int kLate = 8;

// Gathering: the thread waits for kGather before its pass. As long as something new is submitted
// meanwhile, it waits again, twice as long.
constexpr Sleep kGather = 60us, kLongestGather = 480us;

// Waking the thread costs the submitter 50 us if they share a core. So the thread polls by itself
// for a while after submissions that can wait (When::soon). Its interval is kDoze, and doubles
// after each poll that found nothing, because a poll costs 20 us.
constexpr Sleep kDoze = 500us, kLongestDoze = 4ms, kDozing = 50ms;
constexpr Sleep kRest = 1h;

}  // namespace

Worker::Worker(bool threaded) : running_(threaded), doze_(kDoze) {
  if (threaded) thread_ = std::thread([this] { loop(); });
}

Worker::~Worker() { stop(); }

void Worker::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
    wake_assistant_.notify_all();
  }
  thread_.join();
  running_ = stop_ = false;
}

void Worker::add(std::shared_ptr<Source> source) {
  {
    const std::lock_guard lock(mutex_);
    sources_.push_back(std::move(source));
  }
  wake();
}

void Worker::remove(const std::shared_ptr<Source>& source) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(sources_, source);
  }
  const std::lock_guard under_way(turn_);  // a pass that began before the erase still uses the source
}

void Worker::wake(When when) {
  const std::lock_guard lock(mutex_);
  submitted_ += when == When::soon;
  if (wanted_ >= when) return;
  wanted_ = when;
  if (assisted_) {
    wake_assistant_.notify_one();
  } else if (when == When::now || !dozing_) {
    wake_.notify_one();
  }
}

void Worker::hurry() {
  const std::lock_guard lock(mutex_);
  if (wanted_ != When::soon || assisted_) return;
  wanted_ = When::now;
  wake_.notify_one();
}

bool Worker::help() {
  if (threaded()) return false;
  const std::unique_lock turn(turn_, std::try_to_lock);
  return turn.owns_lock() && pass().moved;  // otherwise another thread runs a pass now
}

// Runs a pass. turn_ is held.
Worker::Pass Worker::pass() {
  std::vector<std::shared_ptr<Source>> sources;
  {
    const std::lock_guard lock(mutex_);
    wanted_ = When::never;  // before the pass, so that a submit during it is not missed
    sources = sources_;
  }
  Pass result;
  for (const auto& source : sources) {
    const Progress progress = source->turn();
    result.listening |= source->listens();
    if (progress == Progress::done) continue;
    result.pending = true;
    result.moved |= progress == Progress::moved;
    result.moving |= source->moving_data();
    result.far |= source->far();
  }
  listening_ = result.listening;
  return result;
}

void Worker::loop() {
  const ShortSleeps short_sleeps;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      rest(lock);
      if (stop_) return;
      gather(lock);
    }
    work(false, kForEver, [this](const Pass& last) {
      const std::lock_guard lock(mutex_);
      if (last.moved) doze_ = kDoze;
      if (assisted_) wanted_ = When::now;  // the remaining work is polled again afterwards
      return stop_ || assisted_ || !last.pending;
    });
  }
}

// Rests until there is work.
void Worker::rest(std::unique_lock<std::mutex>& lock) {
  const auto due = [this] { return stop_ || (wanted_ != When::never && !assisted_); };
  while (!due()) {
    const std::int64_t now = now_ns();
    if (noticed_ != submitted_) noticed_ns_ = now;
    noticed_ = submitted_;
    dozing_ = noticed_ > 0 && now - noticed_ns_ < kDozing.count();
    const bool listens = listening_ && !assisted_;  // if a caller assists, that caller polls
    wake_.wait_for(lock, dozing_ ? doze_ : listens ? kListening : kRest);
    if (std::exchange(dozing_, false)) doze_ = std::min(2 * doze_, kLongestDoze);  // loop() resets it when data moves
    if (listens) return;
  }
}

// Waits until nothing has been submitted for a while, or a submission is urgent. After several
// polls that found nothing, it waits once: callers then wait for each operation that they submit,
// so there is nothing to gather, and they do the work unless they compute first.
void Worker::gather(std::unique_lock<std::mutex>& lock) {
  const Sleep longest = doze_ > 2 * kDoze ? kGather : kLongestGather;
  const auto hurry = [this] { return wanted_ != When::soon || assisted_ || stop_; };
  for (Sleep sleep = kGather; !hurry() && sleep <= longest; sleep *= 2) {
    const std::uint64_t before = submitted_;
    wake_.wait_for(lock, sleep, hurry);
    if (submitted_ == before) return;
  }
}

// Runs passes until `over` or the deadline. `over` is called before the first pass and after each.
template <class Over>
void Worker::work(bool assisting, std::int64_t deadline_ns, Over&& over) {
  Pass last{.pending = true};
  if (over(last)) return;
  Backoff backoff(kAgreeing, kSpins, assisting ? kYields : 0, assisting ? kLate : 1);
  std::optional<ShortSleeps> short_sleeps;
  const auto look = [&] {
    {
      const std::lock_guard turn(turn_);  // blocks during remove(): a skipped pass would leave `last` outdated
      last = pass();
    }
    if (assisting && last.far) backoff.yield_immediately(kYieldBetweenHosts);
    return over(last) ? Progress::done : last.moved ? Progress::moved : Progress::blocked;
  };
  const auto pause = [&](Sleep longest) {
    if (assisting && !short_sleeps) short_sleeps.emplace();
    std::unique_lock lock(mutex_);
    const auto woken = [this] { return wanted_ != When::never || stop_; };
    if (!(assisting ? wake_assistant_ : wake_)
             .wait_for(lock, last.moving ? std::min(longest, kMoving) : longest, woken))
      return;
    backoff.reset();
    if (!assisting && !last.moving) gather(lock);
  };
  wait_until(look, backoff, deadline_ns, pause);
}

bool Worker::assist(const std::function<bool()>& over, std::int64_t deadline_ns) {
  {
    const std::lock_guard lock(mutex_);
    if (stop_ || assisted_) return false;
    assisted_ = true;
  }
  bool pending = true;
  work(true, deadline_ns, [&](const Pass& last) {
    pending = last.pending;
    return over() || stop_;
  });
  const std::lock_guard lock(mutex_);
  assisted_ = false;
  if (pending) wanted_ = When::now;
  if (wanted_ != When::never || listening_ || stop_) wake_.notify_one();
  return true;
}

std::function<bool()> helper_of(std::shared_ptr<Worker> worker) {
  if (worker->threaded()) return nullptr;
  return [worker = std::move(worker)] { return worker->help(); };
}

namespace {

// Counts this thread as blocked until an operation is done.
class Blocked {
 public:
  explicit Blocked(std::atomic<int>* waiters) : waiters_(waiters) {
    if (waiters_) waiters_->fetch_add(1, std::memory_order_relaxed);
  }
  ~Blocked() {
    if (waiters_) waiters_->fetch_sub(1, std::memory_order_relaxed);
  }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  std::atomic<int>* const waiters_;
};

}  // namespace

bool wait_for(Operation& operation, Worker& worker, double seconds, bool (*interrupted)()) {
  constexpr double kYear = 3e7;   // seconds; in ns it fits in 64 bits
  constexpr double kHelp = 1e-3;  // seconds between two checks whether this thread must work
  const std::int64_t deadline =
      seconds < 0 ? kForEver : now_ns() + static_cast<std::int64_t>(std::min(seconds, kYear) * 1e9);
  const std::int64_t begun = now_ns();
  const Blocked blocked(seconds < 0 ? &operation.waiters : nullptr);
  CallerWait caller(interrupted);
  while (!operation.done()) {
    const std::int64_t now = now_ns();
    if (now >= deadline) return false;
    caller.look(now);
    const std::int64_t next = std::min(deadline, caller.next_check_ns());
    if (!worker.assist([&] { return operation.done(); }, next))
      operation.wait(worker.threaded() ? static_cast<double>(next - now) * 1e-9 : kHelp);
  }
  if (operation.entry) operation.entry->add_wait(now_ns() - begun);
  return true;
}

}  // namespace ringcomm
