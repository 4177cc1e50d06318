// The worker gives turns to sources with pending work, on its own thread or on that of a waiting
// caller. The engine, the call queues and the point-to-point messages are sources.
//
//            wake(now)
//   rest ─────────────────────────────► work: passes, each a turn for every source; while nothing moves, pauses
//    │ ▲ │                               ▲  │      between them (base/wait.hpp), which wake() cuts short
//    │ │ │ wake(soon)        nothing new │  │
//    │ │ └──────────► gather ────────────┘  │
//    │ └────────────────────────────────────┘ nothing is pending
//    │                                        or a caller assists
//    └─ sleeps until it is woken. Polls by itself every 4 ms if a source listens, up to eight times
//       as often for a while after a submission that can wait: the next one need not wake it.
//
// assist(): a caller that waits for an operation works in place of the thread, which rests. This
// saves two context switches and a second core. Without a thread, only callers work.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/task.hpp"
#include "engine/operation.hpp"

namespace ringcomm {

// A source of work: the named engine, or a channel's queue of non-blocking calls.
class Source {
 public:
  virtual ~Source() = default;
  virtual Progress turn() = 0;  // done: nothing pending (until the next wake). Must not throw
  // The worker calls the following functions after turn().
  virtual bool moving_data() = 0;           // data is moving: poll again within 100 us, otherwise within 1 ms
  virtual bool listens() { return false; }  // messages may arrive with nothing pending: a turn every 4 ms
  virtual bool far() { return false; }      // work waits for other hosts, longer than a yield on this core
};

class Worker {
 public:
  // soon: more submissions may follow, which are cheaper together, or the caller may wait soon. The
  // thread polls somewhat later, or as soon as a caller waits or hurries.
  enum class When : std::uint8_t { never, soon, now };

  explicit Worker(bool threaded);  // false: below MPI_THREAD_MULTIPLE; callers run the turns
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  void add(std::shared_ptr<Source> source);
  void remove(const std::shared_ptr<Source>& source);  // waits until no turn of it runs; not for use within a turn
  void wake(When when = When::now);                    // something was submitted
  void hurry();                                        // a caller tested an operation, and it is not done
  // Works until `over` or the deadline. Returns false without work if another caller assists now.
  bool assist(const std::function<bool()>& over, std::int64_t deadline_ns);
  bool threaded() const { return running_.load(); }  // false after stop() too: callers run the turns again
  bool help();  // one pass on the caller's thread, when not threaded; true if anything moved
  void stop();  // ends the thread

 private:
  struct Pass {
    bool moved = false, pending = false, moving = false;
    bool listening = false;  // nothing is pending, but a source listens
    bool far = false;
  };
  void loop();
  void rest(std::unique_lock<std::mutex>& lock);
  void gather(std::unique_lock<std::mutex>& lock);
  template <class Over>
  void work(bool assisting, std::int64_t deadline_ns, Over&& over);
  Pass pass();

  std::atomic<bool> running_;           // the thread runs
  std::atomic<bool> listening_{false};  // a source listened in the last pass
  std::mutex mutex_;                    // guards all fields below except turn_ and thread_
  std::mutex turn_;                     // held during a pass
  std::condition_variable wake_, wake_assistant_;
  std::atomic<bool> stop_{false};  // written with mutex_ held
  bool assisted_ = false;
  When wanted_ = When::never;                  // the most urgent wake() since the last pass began
  std::uint64_t submitted_ = 0, noticed_ = 0;  // submissions that can wait, and the number that the thread has seen
  std::int64_t noticed_ns_ = 0;                // time at which it saw new ones
  bool dozing_ = false;                        // the thread rests, and polls by itself
  std::chrono::nanoseconds doze_;              // the time until that poll
  std::vector<std::shared_ptr<Source>> sources_;
  std::thread thread_;
};

// Returns a function that runs turns while a caller waits elsewhere; null if there is a thread.
std::function<bool()> helper_of(std::shared_ptr<Worker> worker);

// Waits, and runs the worker's turns. Returns true once done; negative seconds: no limit. Calls
// `interrupted` (or null) every 50 ms. If true, throws Error(interrupted); the operation continues.
bool wait_for(Operation& operation, Worker& worker, double seconds, bool (*interrupted)());

}  // namespace ringcomm
