// Helpers for the core's C++ tests: CHECK, and threads for ranks. Each test file has a main() that
// runs its tests.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

// Under a sanitizer, which is 10 to 20 times slower, tests of all combinations run only a part of
// them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

// Runs body(rank) on `size` threads and joins them.
inline void on_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (auto& thread : threads) thread.join();
}
