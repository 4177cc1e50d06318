// The loop. Sleeps until something is pending; then gives every source its turns, and backs off while nothing moves.
//
// Who waits for an operation gives the turns meanwhile, instead of the thread: on the way to the thread and back two
// switches would be lost, and a core where each rank has one.
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

namespace ringcomm {

// Something with work to do now and then: the named engine, or a channel's queue of non-blocking calls.
class Source {
 public:
  virtual ~Source() = default;
  virtual Progress turn() = 0;     // done: nothing pending (until the next wake). Must not throw
  virtual bool moving_data() = 0;  // bytes in flight: look again within 100 us; else within 1 ms. Called after turn()
  // Something may come at any time, though nothing is pending: a turn each millisecond all the same. Called after
  // turn()
  virtual bool listens() { return false; }
};

class Worker {
 public:
  explicit Worker(bool threaded);  // false: below MPI_THREAD_MULTIPLE; callers give the turns, by help()
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  void add(std::shared_ptr<Source> source);
  void remove(
      const std::shared_ptr<Source>& source);  // returns when no turn of it is under way; not from inside a turn
  void wake();                                 // something was submitted
  // Something small was submitted, and more may follow at once, which is cheaper together: the thread looks a moment
  // later, or as soon as somebody waits or is in a hurry.
  void wake_soon();
  void hurry();  // somebody asked whether something is done, and it is not
  // Gives turns on the caller's thread, in place of the worker's, until `over`, or for so long. False, and nothing has
  // been done, without the thread (then help() does it), or if another caller does so just now.
  bool assist(const std::function<bool()>& over, std::chrono::nanoseconds longest);
  bool threaded() const { return running_.load(); }  // false too after stop(): callers give the turns again
  bool help();  // one pass on the caller's thread, when not threaded; true if anything moved
  void stop();  // the thread ends

 private:
  struct Pass {
    bool moved = false, pending = false, moving = false;
    bool listening = false;  // nothing is pending there, but it wants to be asked
  };
  void loop();
  void doze(std::unique_lock<std::mutex>& lock);
  void work();  // passes until nothing is pending, or somebody assists
  void gather(std::unique_lock<std::mutex>& lock);
  Pass turns();  // a pass for which submissions from now on count as new
  Pass pass();

  std::atomic<bool> running_;           // the thread
  std::atomic<bool> listening_{false};  // some source did, when last asked
  std::mutex mutex_;                    // guards all below but thread_
  std::mutex turn_;                     // held during a pass
  std::condition_variable wake_, wake_assistant_;
  bool stop_ = false, woken_ = false, assisted_ = false;
  bool gathering_ = false;                     // all that was submitted can wait a moment
  bool dozing_ = false;                        // the thread looks by itself before long
  std::uint64_t submitted_ = 0, noticed_ = 0;  // small things
  std::int64_t noticed_ns_ = 0;                // when the thread saw that there were new ones
  std::vector<std::shared_ptr<Source>> sources_;
  std::thread thread_;
};

}  // namespace ringcomm
