// Streams and the order in which their operations run.
//
// Every stream is a thread. With a delay of 0 each runs what it has as fast as it can. With a delay the order is the
// least convenient one that the documentation allows, and drawn from the seed alone:
// - Under a seed a stream is slow, fast or mixed. A fast operation runs as soon as what it must follow has run, and the
//   call that queued it does not return before; a slow one is held back until somebody waits for it, or polls for it
//   several times, or this process has made no call for its drawn delay.
// - Waiting demands exactly what the documentation orders: the stream up to there, and what its event waits name. What
//   is only *probably* finished by then has not begun.
// - One operation runs at a time; among several that may run the drawn number decides.
// So a copy in a stream that does not wait for the kernel that fills its source reads old bytes under every seed that
// makes the kernel's stream slow, however the machine is loaded.
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

struct Point {  // everything of a stream up to here, or an interprocess event's record
  std::shared_ptr<Stream> stream;
  std::uint64_t sequence = 0;
  EventSlot* slot = nullptr;
  std::uint64_t value = 0;

  bool reached() const;
};

struct Operation {
  std::function<void()> run;
  std::vector<Point> after;
  bool exclusive = true;         // takes the device's only turn: nothing that may wait for others
  bool always = false;           // runs after the device is lost, too
  EventSlot* records = nullptr;  // completes it
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
  std::condition_variable work;  // what its thread sleeps on
  int polls = 0;
  bool busy = false, closing = false, started = false;
  std::atomic<bool> capturing{false};
};

class Scheduler {
 public:
  static Scheduler& get();

  std::shared_ptr<Stream> create(Context* context, bool blocking, bool legacy, int priority);
  void close(const std::shared_ptr<Stream>& stream);  // what it holds still runs
  Point enqueue(const std::shared_ptr<Stream>& stream, Operation operation);
  Point tail(const std::shared_ptr<Stream>& stream);
  void wait(const Point& point);       // until it is reached or the device is lost
  bool poll(const Point& point);       // whether it is reached
  void drain(const Context* context);  // null: all
  void reseed();                       // streams made from now on are numbered from 0
  bool stopping() const { return stopping_.load(); }
  void stop();  // at the process's end: running operations end, no other begins

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
  std::condition_variable changed_;  // what callers sleep on
  std::vector<std::shared_ptr<Stream>> streams_;
  std::uint64_t created_ = 0;
  bool turn_taken_ = false;
  int threads_ = 0;
  std::atomic<bool> stopping_{false};
};

}  // namespace standin
