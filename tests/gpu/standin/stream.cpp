// Implements stream.hpp: the scheduler that decides which stream's operation runs next.
#include "stream.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "settings.hpp"

namespace standin {
namespace {

using std::chrono::microseconds;

constexpr long kLongestHoldNs = 50000000;               // limits holds in a process that calls all the time
constexpr auto kLongestTurn = std::chrono::seconds(1);  // limits how long a call waits for its fast operation

bool delays() { return Settings::get().delay_us.load() > 0; }

bool drawn_fast(std::uint64_t ordinal, std::uint64_t sequence) {
  const std::uint64_t character = Settings::get().draw(ordinal, 0) % 3;
  if (character != 2) return character == 1;
  return Settings::get().draw(ordinal, sequence) >> 63 != 0;
}

}  // namespace

bool Point::reached() const {
  if (slot != nullptr) return slot->completed.load() >= value;
  return stream == nullptr || stream->done >= sequence;
}

Scheduler& Scheduler::get() {
  static Scheduler* const scheduler = new Scheduler;  // never destroyed: its threads may outlive main
  return *scheduler;
}

std::shared_ptr<Stream> Scheduler::create(Context* context, bool blocking, bool legacy, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->context = context;
  stream->blocking = blocking;
  stream->legacy = legacy;
  stream->priority = priority;
  const std::lock_guard lock(mutex_);
  stream->ordinal = created_++;
  streams_.push_back(stream);
  return stream;
}

void Scheduler::close(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  stream->closing = true;
  if (!stream->started) std::erase(streams_, stream);
  stream->work.notify_one();
}

// Wakes all callers and streams that may wait for this change. A stream without work is not woken.
void Scheduler::announce() {
  changed_.notify_all();
  for (const auto& stream : streams_) {
    if (!stream->queue.empty() || stopping()) stream->work.notify_one();
  }
}

void Scheduler::reseed() {
  const std::lock_guard lock(mutex_);
  created_ = 0;
}

// Orders the legacy stream and the blocking streams of its context after each other.
void Scheduler::order_by_default(const std::shared_ptr<Stream>& stream, Operation& operation) {
  if (!stream->blocking) return;
  for (const auto& other : streams_) {
    if (other == stream || other->context != stream->context || !other->blocking || other->done == other->tail)
      continue;
    if (stream->legacy || other->legacy) operation.after.push_back({other, other->tail, nullptr, 0});
  }
}

Point Scheduler::enqueue(const std::shared_ptr<Stream>& stream, Operation operation) {
  std::unique_lock lock(mutex_);
  order_by_default(stream, operation);
  operation.sequence = ++stream->tail;
  operation.drawn = Settings::get().draw(stream->ordinal, operation.sequence);
  operation.fast = drawn_fast(stream->ordinal, operation.sequence);
  if (delays()) operation.queued_cpu_ns = process_cpu_ns();
  const Point point{stream, operation.sequence, nullptr, 0};
  const bool at_once = delays() && operation.fast && operation.exclusive && stream->queue.empty() && !stream->busy &&
                       std::ranges::all_of(operation.after, &Point::reached);
  stream->queue.push_back(std::move(operation));
  if (!stream->started) {
    stream->started = true;
    ++threads_;
    std::thread([this, stream] { serve(stream); }).detach();
  }
  lock.unlock();
  stream->work.notify_one();  // a thread woken while this one has the lock sleeps again
  if (!at_once) return point;
  lock.lock();
  changed_.wait_for(lock, kLongestTurn, [&] { return point.reached() || stopping(); });
  return point;
}

Point Scheduler::tail(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  return {stream, stream->tail, nullptr, 0};
}

bool Scheduler::ready(const Stream& stream) const {
  return !stream.busy && !stream.queue.empty() && std::ranges::all_of(stream.queue.front().after, &Point::reached);
}

// Returns whether a stream's first operation may run without a draw: it is fast, or a caller waits
// for it.
bool Scheduler::entitled(const Stream& stream) const {
  return !delays() || stream.queue.front().fast || stream.demanded >= stream.queue.front().sequence;
}

bool Scheduler::permitted(const Stream& stream) const {
  if (entitled(stream)) return true;
  // Entitled operations run first, however long their threads take to get a core.
  if (turn_taken_ || std::ranges::any_of(streams_, [&](const auto& s) { return ready(*s) && entitled(*s); }))
    return false;
  const Operation& front = stream.queue.front();
  const long delay_ns = Settings::get().delay_us.load() * 1000;
  const long hold_ns = delay_ns / 2 + static_cast<long>(front.drawn % static_cast<std::uint64_t>(delay_ns / 2 + 1));
  return Settings::get().quiet.lasts(hold_ns) ||
         process_cpu_ns() - front.queued_cpu_ns >= kLongestHoldNs + 8 * delay_ns;
}

bool Scheduler::chosen(const Stream& stream) const {
  if (!delays() || !stream.queue.front().exclusive) return true;
  if (turn_taken_) return false;
  const std::uint64_t drawn = stream.queue.front().drawn;
  return std::ranges::none_of(streams_, [&](const auto& other) {
    return other.get() != &stream && ready(*other) && other->queue.front().exclusive &&
           other->queue.front().drawn < drawn && permitted(*other);
  });
}

// Demands the operations that the documentation orders before a point, and no others.
void Scheduler::demand(const Point& point) {
  if (point.slot != nullptr) {
    std::uint64_t wanted = point.slot->wanted.load();
    while (wanted < point.value && !point.slot->wanted.compare_exchange_weak(wanted, point.value)) {
    }
  }
  if (point.stream == nullptr || point.stream->demanded >= point.sequence) return;
  point.stream->demanded = point.sequence;
  for (const Operation& operation : point.stream->queue) {
    if (operation.sequence > point.sequence) break;
    for (const Point& before : operation.after) demand(before);
  }
  announce();
}

// Demands the records of this stream that a peer waits for, as if a caller here waited for them.
void Scheduler::heed_peers(Stream& stream) {
  for (const Operation& operation : stream.queue) {
    if (operation.records == nullptr || operation.records->wanted.load() < operation.value) continue;
    for (const auto& own : streams_) {
      if (own.get() == &stream) return demand({own, operation.sequence, nullptr, 0});
    }
  }
}

void Scheduler::wait(const Point& point) {
  std::unique_lock lock(mutex_);
  demand(point);
  Settings::get().quiet.inside(false);
  while (!point.reached() && !stopping() && Settings::get().stuck() == CUDA_SUCCESS) {
    changed_.wait_for(lock, microseconds(point.slot != nullptr ? 50 : 20000));
  }
  Settings::get().quiet.inside(true);
}

bool Scheduler::poll(const Point& point) {
  const std::lock_guard lock(mutex_);
  if (point.reached()) return true;
  if (point.stream == nullptr) {
    demand(point);
  } else if (++point.stream->polls >
             static_cast<int>(Settings::get().draw(point.stream->ordinal, point.sequence) % 4)) {
    point.stream->polls = 0;
    demand(point);
  }
  return false;
}

void Scheduler::drain(const Context* context) {
  std::vector<Point> points;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& stream : streams_) {
      if (context == nullptr || stream->context == context) points.push_back({stream, stream->tail, nullptr, 0});
    }
  }
  for (const Point& point : points) wait(point);
}

long Scheduler::nap_us(const Stream& stream) const {
  if (stream.queue.empty() || stream.busy) return 1000000;
  const bool for_peer =
      std::ranges::any_of(stream.queue.front().after, [](const Point& p) { return p.slot != nullptr; });
  if (for_peer) return 30;
  return delays() ? std::clamp(Settings::get().delay_us.load() / 4, 100L, 1000L) : 100000;
}

void Scheduler::run_front(std::unique_lock<std::mutex>& lock, Stream& stream) {
  Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  stream.busy = true;
  if (operation.exclusive) turn_taken_ = true;
  lock.unlock();
  if (operation.always || Settings::get().stuck() == CUDA_SUCCESS) {
    operation.run();
    if (operation.records != nullptr && Settings::get().stuck() == CUDA_SUCCESS) {
      std::uint64_t seen = operation.records->completed.load();
      while (seen < operation.value && !operation.records->completed.compare_exchange_weak(seen, operation.value)) {
      }
    }
  }
  operation.run = nullptr;  // the objects that it holds may need the mutex
  lock.lock();
  if (operation.exclusive) turn_taken_ = false;
  stream.busy = false;
  stream.done = operation.sequence;
  announce();
}

void Scheduler::serve(std::shared_ptr<Stream> stream) {
  std::unique_lock lock(mutex_);
  while (!stopping() && !(stream->closing && stream->queue.empty())) {
    heed_peers(*stream);
    // After a loss the queue is emptied without waits and without execution.
    const bool lost = Settings::get().stuck() != CUDA_SUCCESS;
    if (!stream->queue.empty() && (lost || (ready(*stream) && permitted(*stream) && chosen(*stream)))) {
      run_front(lock, *stream);
    } else {
      stream->work.wait_for(lock, microseconds(nap_us(*stream)));
    }
  }
  std::erase(streams_, stream);
  --threads_;
  changed_.notify_all();
}

void Scheduler::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  announce();
  // Bounded: a host function may wait for a lock that is never released.
  changed_.wait_for(lock, std::chrono::seconds(2), [&] { return threads_ == 0; });
}

}  // namespace standin
