// Sets the time slice through the system calls sched_getattr and sched_setattr.
#include "base/time_slice.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ringcomm {
namespace {

struct Attributes {  // sched_attr, which headers of older C libraries lack
  std::uint32_t size = sizeof(Attributes), policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0;
};

}  // namespace

bool set_time_slice(std::int64_t ns) noexcept {
  Attributes mine;
  if (::syscall(SYS_sched_getattr, 0, &mine, sizeof mine, 0U) != 0) return false;
  if (mine.policy != SCHED_OTHER && mine.policy != SCHED_BATCH) return false;  // other policies have no time slice
  mine.runtime = static_cast<std::uint64_t>(ns);
  return ::syscall(SYS_sched_setattr, 0, &mine, 0U) == 0;
}

}  // namespace ringcomm
