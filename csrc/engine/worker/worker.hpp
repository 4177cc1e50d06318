// Gives turns to whatever has something pending: on a thread of its own, or on that of a caller who waits.
//
//            wake(now)
//   rest ─────────────────────────────► work: passes, each a turn for every source; while nothing moves, pauses
//    │ ▲ │                               ▲  │      between them (base/wait.hpp), which wake() cuts short
//    │ │ │ wake(soon)        nothing new │  │
//    │ │ └──────────► gather ────────────┘  │
//    │ └────────────────────────────────────┘ nothing is pending
//    │                                        or somebody assists
//    └─ sleeps until it is woken; looks by itself each 4 ms where a source listens, and up to eight times as often for
//       a while after something was submitted that can wait a moment, so that the next such thing need not wake it
//
// assist(): who waits for an operation works in place of the thread, which rests meanwhile: on the way to the thread
// and back two switches would be lost, and a core where each rank has one. Without a thread only callers work.
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

// Something with work to do now and then: the named engine, or a channel's queue of non-blocking calls.
class Source {
 public:
  virtual ~Source() = default;
  virtual Progress turn() = 0;     // done: nothing pending (until the next wake). Must not throw
  virtual bool moving_data() = 0;  // bytes in flight: look again within 100 us; else within 1 ms. Called after turn()
  // Something may come at any time, though nothing is pending: a turn each 4 ms all the same. Called after
  // turn()
  virtual bool listens() { return false; }
  // What is pending waits for other hosts, which takes longer than to let others of this core have a turn.
  virtual bool far() { return false; }
};

class Worker {
 public:
  // soon: it can wait a moment: more may follow at once, which is cheaper together, or its caller may wait for it. The
  // thread looks somewhat later, or as soon as somebody waits or is in a hurry.
  enum class When : std::uint8_t { never, soon, now };

  explicit Worker(bool threaded);  // false: below MPI_THREAD_MULTIPLE; callers give the turns
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  void add(std::shared_ptr<Source> source);
  // Returns when no turn of it is under way; not from inside a turn.
  void remove(const std::shared_ptr<Source>& source);
  void wake(When when = When::now);  // something was submitted
  void hurry();                      // somebody asked whether something is done, and it is not
  // Works until `over`, or the deadline. False, and nothing has been done, if another caller does so just now.
  bool assist(const std::function<bool()>& over, std::int64_t deadline_ns);
  bool threaded() const { return running_.load(); }  // false too after stop(): callers give the turns again
  bool help();  // one pass on the caller's thread, when not threaded; true if anything moved
  void stop();  // the thread ends

 private:
  struct Pass {
    bool moved = false, pending = false, moving = false;
    bool listening = false;  // nothing is pending there, but it wants to be asked
    bool far = false;
  };
  void loop();
  void rest(std::unique_lock<std::mutex>& lock);
  void gather(std::unique_lock<std::mutex>& lock);
  template <class Over>
  void work(bool assisting, std::int64_t deadline_ns, Over&& over);
  Pass pass();

  std::atomic<bool> running_;           // the thread
  std::atomic<bool> listening_{false};  // some source did, when last asked
  std::mutex mutex_;                    // guards all below but turn_ and thread_
  std::mutex turn_;                     // held during a pass
  std::condition_variable wake_, wake_assistant_;
  std::atomic<bool> stop_{false};  // written with it
  bool assisted_ = false;
  When wanted_ = When::never;                  // by what has come since the last pass began
  std::uint64_t submitted_ = 0, noticed_ = 0;  // what can wait, and what the thread has seen of it
  std::int64_t noticed_ns_ = 0;                // when it saw new ones
  bool dozing_ = false;                        // the thread rests, and looks by itself before long:
  std::chrono::nanoseconds doze_;              // after so long
  std::vector<std::shared_ptr<Source>> sources_;
  std::thread thread_;
};

// What gives turns while a caller waits for something that is none of the worker's; null where it has a thread.
std::function<bool()> helper_of(std::shared_ptr<Worker> worker);

// Waits, and works meanwhile in place of the worker. True once done; negative seconds: for ever. `interrupted` (may be
// null) is asked every 50 ms; Error(interrupted) if it says so; the operation goes on.
bool wait_for(Operation& operation, Worker& worker, double seconds, bool (*interrupted)());

}  // namespace ringcomm
