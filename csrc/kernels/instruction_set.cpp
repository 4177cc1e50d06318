// Which instruction set runs: asked of the machine once, at first use.
#include <atomic>

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
// __builtin_cpu_supports asks the operating system too (XGETBV): registers that it does not save are as good as absent.
bool has_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kF16c = 1u << 29;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return false;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

bool always() { return true; }

// The best comes first.
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
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
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
