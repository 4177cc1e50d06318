// Sets how long a thread runs before the kernel may give its core to another one.
#pragma once

#include <cstdint>

namespace ringcomm {

// Sets the time slice of this thread and of threads that it starts later. With a short slice a
// thread gets its core sooner when it wakes beside a busy process; its share of the core stays the
// same. Needs Linux 6.12; older kernels ignore it. Returns false if the system refuses.
bool set_time_slice(std::int64_t ns) noexcept;

}  // namespace ringcomm
