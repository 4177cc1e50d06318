// Defines streams and the order in which their operations run.
//
// Every stream is a thread. With a delay of 0 each thread runs its operations as fast as it can.
// With a delay the order is the least convenient one that the documentation allows, and depends on
// the seed alone:
// - A seed makes a stream slow, fast or mixed. A fast operation runs once its predecessors have
//   run, and the call that queued it returns afterwards. A slow operation is delayed until a caller
//   waits for it, or polls for it several times, or the process has made no call for the delay
//   drawn for it.
// - A wait demands exactly the operations that the documentation orders: the stream up to this
//   point, and the records that its event waits name. Operations that have only *probably* finished
//   by then have not begun.
// - One operation runs at a time; among several that may run, the draw decides.
// For example, a copy in a stream that does not wait for the kernel that fills its source reads old
// bytes under every seed that makes the kernel's stream slow, at any load of the machine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_abi.h"

namespace standin {

struct Context;
struct Stream;

struct EventSlot {  // an interprocess event, in memory that its processes share
  std::atomic<std::uint64_t> issued, completed, wanted;
};

struct Point {  // all operations of a stream up to here, or an interprocess event's record
  std::shared_ptr<Stream> stream;
  std::uint64_t sequence = 0;
  EventSlot* slot = nullptr;
  std::uint64_t value = 0;

  bool reached() const;
};

struct Operation {
  std::function<void()> run;
  std::vector<Point> after;
  bool exclusive = true;         // takes the device's only turn; false if it may wait for other operations
  bool always = false;           // runs even after the device is lost
  EventSlot* records = nullptr;  // its end completes this event
  std::uint64_t value = 0;
  std::uint64_t sequence = 0, drawn = 0;
  bool fast = false;
  long queued_cpu_ns = 0;
};

struct Stream {
  Context* context = nullptr;
  bool blocking = true, legacy = false;  // blocking: ordered with the legacy stream
  int priority = 0;
  std::uint64_t ordinal = 0;
  // Guarded by the scheduler's mutex:
  std::deque<Operation> queue;
  std::uint64_t tail = 0, done = 0, demanded = 0;
  std::condition_variable work;  // its thread sleeps on it
  int polls = 0;
  bool busy = false, closing = false, started = false;
  std::atomic<bool> capturing{false};
};

class Scheduler {
 public:
  static Scheduler& get();

  std::shared_ptr<Stream> create(Context* context, bool blocking, bool legacy, int priority);
  void close(const std::shared_ptr<Stream>& stream);  // its queued operations still run
  Point enqueue(const std::shared_ptr<Stream>& stream, Operation operation);
  Point tail(const std::shared_ptr<Stream>& stream);
  void wait(const Point& point);       // until it is reached or the device is lost
  bool poll(const Point& point);       // returns whether it is reached
  void drain(const Context* context);  // null: all contexts
  void reseed();                       // later streams are numbered from 0
  bool stopping() const { return stopping_.load(); }
  void stop();  // at the process's end: running operations end, no further ones begin

 private:
  void serve(std::shared_ptr<Stream> stream);
  void announce();
  void run_front(std::unique_lock<std::mutex>& lock, Stream& stream);
  bool ready(const Stream& stream) const;
  bool entitled(const Stream& stream) const;
  bool permitted(const Stream& stream) const;
  bool chosen(const Stream& stream) const;
  void demand(const Point& point);
  void heed_peers(Stream& stream);
  void order_by_default(const std::shared_ptr<Stream>& stream, Operation& operation);
  long nap_us(const Stream& stream) const;

  std::mutex mutex_;
  std::condition_variable changed_;  // callers sleep on it
  std::vector<std::shared_ptr<Stream>> streams_;
  std::uint64_t created_ = 0;
  bool turn_taken_ = false;
  int threads_ = 0;
  std::atomic<bool> stopping_{false};
};

}  // namespace standin
