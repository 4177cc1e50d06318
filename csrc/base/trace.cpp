// Implements the ring of trace events, and the scope that connects deeper layers' events to a call.
#include "base/trace.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/fields.hpp"

namespace ringcomm {
namespace {

thread_local TraceLabel* current = nullptr;

}  // namespace

void Trace::enable(bool on) {
  const std::lock_guard drain(draining_);
  const std::lock_guard lock(mutex_);
  if (on && !ring_) {  // allocated completely now, so that no later record() waits for pages
    ring_ = std::make_unique<TraceEvent[]>(capacity_);
    spare_ = std::make_unique<TraceEvent[]>(capacity_);
  }
  on_.store(on, std::memory_order_relaxed);
}

void Trace::record(std::string_view category, std::string_view name, std::string_view detail, std::int64_t begin_ns,
                   std::int64_t end_ns, std::uint64_t bytes, int rank, int thread, int lane) {
  if (!enabled()) return;
  const std::lock_guard lock(mutex_);
  if (written_ >= capacity_) dropped_.fetch_add(1, std::memory_order_relaxed);  // the oldest event is lost, or this one
  if (capacity_ == 0) return;
  TraceEvent& event = ring_[written_++ % capacity_];
  event.begin_ns = begin_ns;
  event.end_ns = end_ns;
  event.bytes = bytes;
  event.rank = rank;
  event.thread = thread;
  event.lane = lane;
  write_field(event.category, category);
  write_field(event.name, name);
  write_field(event.detail, detail);
}

std::vector<TraceEvent> Trace::drain() {
  const std::lock_guard drain(draining_);
  std::uint64_t written = 0;
  {
    const std::lock_guard lock(mutex_);
    ring_.swap(spare_);
    written = std::exchange(written_, 0);
  }
  const std::size_t kept = std::min<std::uint64_t>(written, capacity_),
                    first = written > capacity_ ? written % capacity_ : 0;
  std::vector<TraceEvent> events;
  events.reserve(kept);
  for (std::size_t i = 0; i < kept; ++i) events.push_back(spare_[(first + i) % capacity_]);
  return events;
}

Trace& process_trace = *new Trace();

TraceScope::TraceScope(TraceLabel& label) : before_(current) {
  if (label.since_ns == 0) label.since_ns = now_ns();
  current = &label;
}

TraceScope::~TraceScope() { current = before_; }

std::int64_t clock_in_scope() { return current ? now_ns() : 0; }

void record_since(std::string_view category, std::int64_t until_ns) {
  if (!current) return;
  trace().record(category, current->name, {}, current->since_ns, until_ns, 0, current->rank, current->thread);
  current->since_ns = until_ns;
}

void trace_lane(std::string_view category, std::string_view detail, std::int64_t begin_ns, std::uint64_t bytes,
                int lane) {
  if (!current || begin_ns == 0) return;
  trace().record(category, current->name, detail, begin_ns, now_ns(), bytes, current->rank, current->thread, lane);
}

}  // namespace ringcomm
