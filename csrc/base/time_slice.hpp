// How long a thread runs before the kernel looks whether others want its core.
#pragma once

#include <cstdint>

namespace ringcomm {

// For this thread and those that it starts. Who asks for short slices gets its core sooner when it wakes beside a busy
// process, and no less and no more of it. Linux since 6.12; elsewhere nothing happens. False: the system refuses.
bool set_time_slice(std::int64_t ns) noexcept;

}  // namespace ringcomm
