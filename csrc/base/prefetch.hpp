// Requests cache lines early, to hide the latency of a write to a line that a peer holds.
#pragma once

namespace ringcomm {

// Fetches a line for exclusive ownership. Processors without the instruction ignore it.
inline void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace ringcomm
