// Selects the instruction set: queries the processor once, at first use.
#include <atomic>
#include <cstdint>

#include "kernels/kernels.hpp"
#include "kernels/table.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ringcomm::kernels {
namespace {

struct Candidate {
  const Table* (*table)();
  bool (*supported)();
};

#if defined(__x86_64__)
// Uses CPUID and XGETBV directly: __builtin_cpu_supports always returns 0 with some C libraries.
struct Features {
  bool avx2 = false, avx512 = false;
};

std::uint64_t saved_registers() {  // registers that the operating system saves; the rest is unusable
  std::uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

Features features() {
  constexpr unsigned kFma = 1u << 12, kXsave = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;  // leaf 1, ecx
  constexpr unsigned kAvx2 = 1u << 5;                                                        // leaf 7, ebx
  constexpr unsigned kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // leaf 7, ebx: F, DQ, BW, VL
  constexpr std::uint64_t kYmm = 0x6, kZmm = 0xe6;
  unsigned a = 0, b = 0, c = 0, d = 0;
  const auto all = [](auto have, auto wanted) { return (have & wanted) == wanted; };
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || !all(c, kFma | kXsave | kAvx | kF16c)) return {};
  const std::uint64_t saved = saved_registers();
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || !all(b, kAvx2) || !all(saved, kYmm)) return {};
  return {true, all(b, kAvx512) && all(saved, kZmm)};
}

bool has_avx2() { return features().avx2; }
bool has_avx512() { return features().avx512; }
#endif

bool always() { return true; }

// Candidates, the best first.
constexpr Candidate kCandidates[] = {
#if defined(__x86_64__)
    {avx512_table, has_avx512},
    {avx2_table, has_avx2},
#elif defined(__aarch64__)
    {neon_table, always},
#endif
    {generic_table, always},
};

const Table* best() {
  for (const Candidate& candidate : kCandidates)
    if (candidate.supported()) return candidate.table();
  return generic_table();
}

std::atomic<const Table*>& chosen() {
  static std::atomic<const Table*> table{best()};
  return table;
}

}  // namespace

const Table& table() { return *chosen().load(std::memory_order_acquire); }

std::string_view instruction_set() { return table().name; }

bool use_instruction_set(std::string_view name) {
  std::atomic<const Table*>& current = chosen();
  for (const Candidate& candidate : kCandidates) {
    if (!candidate.supported() || candidate.table()->name != name) continue;
    current.store(candidate.table(), std::memory_order_release);
    return true;
  }
  return false;
}

}  // namespace ringcomm::kernels
