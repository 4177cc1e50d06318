// Records events in a ring, one per process. The timeline, the log and the stall report are made
// from it. While recording is off, an event costs one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace ringcomm {

// Values of TraceEvent::lane for a call's copies between a device and the host.
inline constexpr std::int32_t kFromDeviceLane = 997, kToDeviceLane = 998;

struct TraceEvent {
  std::int64_t begin_ns, end_ns;  // steady clock; equal for an instant
  std::uint64_t bytes;
  std::int32_t rank, thread;  // thread: 0 caller, 1 worker
  std::int32_t lane;          // row of the timeline, for phases that overlap in time; -1: none
  char category[16];          // "filled", "queue", "ready", "agree", "cycle", "pack", "run",
                              // "unpack", "done"; within "run":
                              // "host wait", "host work", "encode", "decode", "share-reduce",
                              // "share-only", "from device", "to device"
  char name[64];              // tensor or call
  char detail[32];            // route that ran: "ring", "shared", ...
};

class Trace {
 public:
  explicit Trace(std::size_t capacity = 65536) : capacity_(capacity) {}
  void enable(bool on);  // the first enable(true) allocates the memory
  bool enabled() const { return on_.load(std::memory_order_relaxed); }
  void record(std::string_view category, std::string_view name, std::string_view detail, std::int64_t begin_ns,
              std::int64_t end_ns, std::uint64_t bytes, int rank, int thread, int lane = -1);
  std::vector<TraceEvent> drain();  // oldest first; empties the ring; recording continues meanwhile
  std::uint64_t dropped() const { return dropped_.load(); }

 private:
  std::atomic<bool> on_{false};
  std::atomic<std::uint64_t> dropped_{0};
  using Memory = std::unique_ptr<TraceEvent[]>;
  const std::size_t capacity_;
  std::mutex draining_;        // locked before mutex_; guards spare_
  std::mutex mutex_;           // guards ring_, written_
  Memory ring_, spare_;        // drain() swaps them
  std::uint64_t written_ = 0;  // since the last drain
};

extern Trace& process_trace;  // never destroyed: a thread may record while the process exits
inline Trace& trace() { return process_trace; }

// The call to which events of deeper layers belong, while a TraceScope for it exists on the thread.
struct TraceLabel {
  std::string_view name;
  int rank = 0, thread = 0;
  std::int64_t since_ns = 0;  // end of the call's last event
};

class TraceScope {
 public:
  explicit TraceScope(TraceLabel& label);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceLabel* const before_;
};

// These functions do nothing without a scope on this thread, or while recording is off. Then
// trace_clock() and trace_since() do not read thread-local memory, which costs more than a call.
std::int64_t clock_in_scope();
void record_since(std::string_view category, std::int64_t until_ns);
inline std::int64_t trace_clock() { return trace().enabled() ? clock_in_scope() : 0; }  // now; 0 without a scope
// Records the time from the call's previous event to `until_ns`, a value of trace_clock().
inline void trace_since(std::string_view category, std::int64_t until_ns) {
  if (until_ns != 0) record_since(category, until_ns);
}
void trace_lane(std::string_view category, std::string_view detail, std::int64_t begin_ns, std::uint64_t bytes,
                int lane);

}  // namespace ringcomm
