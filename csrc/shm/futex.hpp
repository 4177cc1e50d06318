// Sleeps on a word that ranks of a host share, and wakes the threads that sleep on it.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace ringcomm {

// Sleeps while `word` equals `seen`, at most `longest_ns`. Not FUTEX_PRIVATE: the kernel identifies
// the word by its file, because each rank maps it at a different address.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::int64_t longest_ns) {
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(longest_ns / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(longest_ns % 1'000'000'000);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

inline void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ringcomm
