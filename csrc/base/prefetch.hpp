// Cache lines that are asked for before they are needed.
#pragma once

namespace ringcomm {

// To be written here alone. Processors that do not know it do nothing.
inline void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace ringcomm
