// One call in a host's shared memory, as a channel makes it, without the consistency check.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <random>
#include <thread>

#include "base/clock.hpp"
#include "base/wait.hpp"
#include "host_collectives/memory_pass.hpp"

namespace ringcomm::testing {

inline constexpr std::int64_t kShort = 20'000'000;  // ns

inline void finish(Task& task, std::mt19937* delays = nullptr) {
  Backoff backoff(std::chrono::milliseconds(20), 16, 16);
  for (;;) {
    const Progress progress = task.advance();
    if (progress == Progress::done) return;
    if (delays && (*delays)() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds((*delays)() % 300));
    if (progress == Progress::moved) {
      backoff.reset();
    } else if (const auto sleep = backoff.next(); sleep.count() > 0) {
      task.nap(std::chrono::nanoseconds(kShort));
    }
  }
}

// Runs one call from start to end.
inline void run_call(Epochs& epochs, const Call& call, std::size_t segment_bytes, std::mt19937* delays = nullptr,
                     int dies_after = 0) {
  epochs.open_call();
  const auto pass = make_memory_pass(epochs, call, segment_bytes);
  pass->open();
  const std::uint32_t epoch = epochs.publish();
  Backoff backoff(std::chrono::milliseconds(20), 16, 16);
  while (!epochs.reached(epoch)) {
    if (const auto sleep = backoff.next(); sleep.count() > 0) epochs.sleep(epoch, kShort);
  }
  pass->begin(epoch);
  if (dies_after > 0) {
    for (int moved = 0; moved < dies_after;) moved += pass->advance() == Progress::moved;
    ::raise(SIGKILL);
  }
  finish(*pass, delays);
}

}  // namespace ringcomm::testing
