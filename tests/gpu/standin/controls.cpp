// Implements standin.h, and the end of the process.
#include "standin.h"

#include "api_module.hpp"
#include "context.hpp"
#include "memory.hpp"
#include "queueing.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

struct AtExit {
  ~AtExit() { Scheduler::get().stop(); }
} at_exit;

}  // namespace

STANDIN_API void standin_seed(std::uint64_t seed) {
  Settings::get().seed = seed;
  Scheduler::get().reseed();
}

STANDIN_API void standin_delay(long microseconds) { Settings::get().delay_us = microseconds; }
STANDIN_API void standin_fault(const char* list) { Settings::get().faults(list); }
STANDIN_API void standin_ignore(const char* list) { Settings::get().ignore(list); }

STANDIN_API void standin_leaks(StandinLeaks* leaks) {
  Memory& memory = Memory::get();
  *leaks = {memory.count(Kind::device),     stream_handles().live(),    event_handles().live(),
            memory.count(Kind::registered), memory.count(Kind::opened), live_modules(),
            memory.count(Kind::pinned),     retained_contexts()};
}

STANDIN_API long standin_calls(const char* name) { return Settings::get().calls(name); }
STANDIN_API long standin_pageable_waits() { return Settings::get().pageable_waits; }
STANDIN_API void standin_aside(int on) { aside = on != 0; }
STANDIN_API void standin_reset_calls() { Settings::get().reset_calls(); }
STANDIN_API long standin_call_places(const char* name) { return Settings::get().places(name); }

STANDIN_API void* standin_host(const void* address) {
  const auto range = Memory::get().find(reinterpret_cast<std::uintptr_t>(address));
  return range ? Memory::get().reach(address, 0, "standin_host") : nullptr;
}

STANDIN_API void standin_check() { Memory::get().check(); }

STANDIN_API void standin_capture(void* stream, int on) {
  const auto found = find_stream(static_cast<CUstream>(stream));
  if (found != nullptr && found->capturing.exchange(on != 0) != (on != 0)) captures += on != 0 ? 1 : -1;
}

STANDIN_API void standin_settle() {
  const Inside inside;
  Scheduler::get().drain(nullptr);
}

STANDIN_API int standin_enqueue(void* stream, void (*run)(void*), void* data, void** last) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (Settings::get().stuck() != CUDA_SUCCESS) return Settings::get().stuck();
  Operation call = operation([=] { run(data); });
  call.exclusive = false;
  if (*last == nullptr) *last = new Point;
  call.after.push_back(*static_cast<Point*>(*last));
  return queue(static_cast<CUstream>(stream), std::move(call), static_cast<Point*>(*last));
}

STANDIN_API void standin_forget(void* last) { delete static_cast<Point*>(last); }

STANDIN_API int standin_stopping() { return Scheduler::get().stopping() ? 1 : 0; }
STANDIN_API int standin_stuck() { return Settings::get().stuck(); }
STANDIN_API int standin_takes_fault(const char* kind) { return Settings::get().takes_fault(kind) ? 1 : 0; }

STANDIN_API void* standin_reach(const void* address, std::size_t nbytes, const char* who) {
  return Memory::get().reach(address, nbytes, who);
}
