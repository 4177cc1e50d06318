#include "engine/worker.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/clock.hpp"
#include "base/short_sleeps.hpp"

namespace ringcomm {

namespace {

using Sleep = std::chrono::nanoseconds;
using std::chrono::microseconds;

// MPI cannot wake anybody, so waiting polls; these bound what it costs (one look takes a few microseconds).
constexpr Sleep kMovingSleep = microseconds(100);     // bytes are in flight
constexpr Sleep kAgreeingSleep = microseconds(1000);  // only agreement waits
constexpr Sleep kLongSleep = microseconds(2000);      // and has waited for more than a second
constexpr std::int64_t kLongWait = 1'000'000'000;

// Gathering: the first look comes so soon, later ones after twice the time each, as long as there was something new.
constexpr Sleep kGather = microseconds(60), kLongestGather = microseconds(480);

// To wake the thread costs whoever submits 50 us if they share a core. So for a while after small things were submitted
// it looks by itself, so often.
constexpr Sleep kDoze = microseconds(500);
constexpr std::int64_t kDozing = 50'000'000;

// To a source that listens while nothing is pending.
constexpr Sleep kListen = microseconds(1000);

// How long to sleep after a pass.
class Pace {
 public:
  Pace() : backoff_(kLongSleep) {}
  void moved() {
    backoff_.reset();
    still_since_ = 0;
  }
  void woken() { backoff_.reset(); }
  Sleep still(bool moving_data) {  // zero: look again at once
    const Sleep sleep = backoff_.next();
    if (sleep.count() == 0) return sleep;
    const std::int64_t now = now_ns();
    if (still_since_ == 0) still_since_ = now;
    return std::min(sleep, moving_data ? kMovingSleep : now - still_since_ > kLongWait ? kLongSleep : kAgreeingSleep);
  }

 private:
  Backoff backoff_;
  std::int64_t still_since_ = 0;  // when it was last seen that nothing moves; 0: something did
};

}  // namespace

Worker::Worker(bool threaded) : running_(threaded) {
  if (threaded) thread_ = std::thread([this] { loop(); });
}

Worker::~Worker() { stop(); }

void Worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
    wake_assistant_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  running_.store(false);
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
  const std::lock_guard under_way(turn_);  // a pass that began before the erase still knew it
}

void Worker::wake() {
  const std::lock_guard lock(mutex_);
  const bool known = woken_ && !gathering_;
  gathering_ = false;
  woken_ = true;
  if (!known) (assisted_ ? wake_assistant_ : wake_).notify_one();
}

void Worker::wake_soon() {
  const std::lock_guard lock(mutex_);
  ++submitted_;
  if (woken_) return;
  woken_ = gathering_ = true;
  if (assisted_) {
    wake_assistant_.notify_one();
  } else if (!dozing_) {
    wake_.notify_one();
  }
}

void Worker::hurry() {
  const std::lock_guard lock(mutex_);
  if (!woken_ || !gathering_ || assisted_) return;
  gathering_ = false;
  wake_.notify_one();
}

bool Worker::help() {
  if (threaded()) return false;
  const std::unique_lock turn(turn_, std::try_to_lock);
  return turn.owns_lock() && pass().moved;  // else another thread gives the turns just now
}

// With turn_ held.
Worker::Pass Worker::pass() {
  std::vector<std::shared_ptr<Source>> sources;
  {
    const std::lock_guard lock(mutex_);
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
  }
  return result;
}

Worker::Pass Worker::turns() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = gathering_ = false;  // before the pass, so that a submit during it is not missed
  }
  const std::lock_guard turn(turn_);  // somebody may be removing a source: what is pending is not known without a look
  const Pass result = pass();
  listening_ = result.listening;
  return result;
}

void Worker::loop() {
  const ShortSleeps short_sleeps;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      doze(lock);
      if (stop_) return;
      gather(lock);
    }
    work();
  }
}

// Until there is something to do.
void Worker::doze(std::unique_lock<std::mutex>& lock) {
  const auto due = [this] { return (woken_ && !assisted_) || stop_; };
  while (!due()) {
    const std::int64_t now = now_ns();
    if (submitted_ != noticed_) {
      noticed_ = submitted_;
      noticed_ns_ = now;
    }
    const bool listens = listening_ && !assisted_;  // who assists gives these turns
    if (now - noticed_ns_ > kDozing) {
      if (!listens) {
        wake_.wait(lock, [&] { return due() || (listening_ && !assisted_); });
        continue;
      }
      wake_.wait_for(lock, kListen, due);
      return;
    }
    dozing_ = true;
    wake_.wait_for(lock, kDoze);
    dozing_ = false;
    if (listens) return;
  }
}

// Until nothing was submitted for a while, or somebody does not want to wait so long.
void Worker::gather(std::unique_lock<std::mutex>& lock) {
  const auto hurry = [this] { return !gathering_ || assisted_ || stop_; };
  for (Sleep sleep = kGather; !hurry() && sleep <= kLongestGather; sleep *= 2) {
    const std::uint64_t before = submitted_;
    wake_.wait_for(lock, sleep, hurry);
    if (submitted_ == before) return;
  }
}

void Worker::work() {
  Pace pace;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      if (assisted_) {
        woken_ = true;  // what is left then is looked at again
        return;
      }
    }
    const Pass result = turns();
    if (!result.pending) return;
    if (result.moved) {
      pace.moved();
      continue;
    }
    const Sleep sleep = std::min(pace.still(result.moving), result.listening ? kListen : kLongSleep);
    if (sleep.count() == 0) continue;
    std::unique_lock lock(mutex_);
    const bool woken = wake_.wait_for(lock, sleep, [this] { return woken_ || stop_; });
    if (woken && !result.moving) gather(lock);
    if (woken) pace.woken();
  }
}

bool Worker::assist(const std::function<bool()>& over, std::chrono::nanoseconds longest) {
  {
    const std::lock_guard lock(mutex_);
    if (!threaded() || stop_ || assisted_) return false;
    assisted_ = true;
  }
  const std::int64_t begin = now_ns();
  Pace pace;
  std::optional<ShortSleeps> short_sleeps;
  bool pending = true;
  while (!over()) {
    const Pass result = turns();
    pending = result.pending;
    if (over() || now_ns() - begin > longest.count()) break;
    if (result.moved) {
      pace.moved();
      continue;
    }
    const Sleep sleep = std::min(pace.still(result.moving), result.listening ? kListen : kLongSleep);
    if (sleep.count() == 0) continue;
    if (!short_sleeps) short_sleeps.emplace();
    std::unique_lock lock(mutex_);
    if (stop_) break;
    if (wake_assistant_.wait_for(lock, sleep, [this] { return woken_ || stop_; })) pace.woken();
  }
  const std::lock_guard lock(mutex_);
  assisted_ = false;
  woken_ |= pending;
  if (woken_ || listening_ || stop_) wake_.notify_one();
  return true;
}

}  // namespace ringcomm
