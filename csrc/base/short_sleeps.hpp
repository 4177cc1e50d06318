// Makes sleeps of a few microseconds precise, for threads that poll with short sleeps.
#pragma once

#include <sys/prctl.h>

namespace ringcomm {

// While this object exists, Linux may add 1 us (timer slack) to a sleep of this thread, instead of
// its default of 50 us.
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
