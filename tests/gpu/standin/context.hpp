// Defines primary contexts, each thread's stack of current contexts, and the handles of streams,
// events, modules and functions.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cuda_abi.h"
#include "settings.hpp"
#include "stream.hpp"

namespace standin {

struct Context {
  int device = 0;
  std::atomic<int> retained{0};
  std::shared_ptr<Stream> legacy;
};

Context* current_context();
Context* primary_context(int device);  // the device must exist
long retained_contexts();

// Returns the stream of a handle, or null if there is none. A destroyed stream is a violation. 0, 1
// and 2 are the default streams of the current context.
std::shared_ptr<Stream> find_stream(CUstream stream);

// A table of handles, which are addresses. Destroyed objects are kept, so that their addresses are
// not reused and late uses are detected.
template <class Thing, class Handle>
class Handles {
 public:
  explicit Handles(const char* noun) : noun_(noun) {}

  Handle add(std::shared_ptr<Thing> thing) {
    const std::lock_guard lock(mutex_);
    const Handle handle = reinterpret_cast<Handle>(thing.get());
    live_[handle] = std::move(thing);
    return handle;
  }
  std::shared_ptr<Thing> find(Handle handle) {
    const std::lock_guard lock(mutex_);
    if (const auto found = live_.find(handle); found != live_.end()) return found->second;
    if (destroyed_.contains(handle)) violation(std::string(noun_) + " is used after it was destroyed");
    return nullptr;
  }
  std::shared_ptr<Thing> remove(Handle handle) {
    auto thing = find(handle);
    const std::lock_guard lock(mutex_);
    if (thing != nullptr && live_.erase(handle) == 1) destroyed_[handle] = thing;
    return thing;
  }
  long live() {
    const std::lock_guard lock(mutex_);
    return static_cast<long>(live_.size());
  }

 private:
  const char* noun_;
  std::mutex mutex_;
  std::unordered_map<Handle, std::shared_ptr<Thing>> live_, destroyed_;
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  EventSlot* slot = nullptr;  // for an interprocess event
  bool opened = false;
  std::mutex mutex;
  Point latest;
  bool recorded = false;
  std::atomic<long> reached_ns{0};
};

Handles<Stream, CUstream>& stream_handles();
Handles<Event, CUevent>& event_handles();

}  // namespace standin
