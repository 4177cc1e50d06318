// For threads that sleep some microseconds.
#pragma once

#include <sys/prctl.h>

namespace ringcomm {

// By default Linux rounds a thread's short sleeps up by 50 us. For as long as this lives it does not.
class ShortSleeps {
 public:
  ShortSleeps() : before_(prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL)) {
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  }
  ~ShortSleeps() {
    if (before_ > 0) prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_), 0UL, 0UL, 0UL);
  }

 private:
  const int before_;
};

}  // namespace ringcomm
