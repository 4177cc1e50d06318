// Measures how long the process could have made a call and has not. Time in which the last calling
// thread was ready but had no core does not count. Otherwise load on the machine would change the
// order of operations.
#pragma once

#include <atomic>

namespace standin {

class Quiet {
 public:
  void called();
  void inside(bool yes);         // a call that does not wait for the device is active: not quiet
  bool lasts(long nanoseconds);  // since the last call

 private:
  std::atomic<long> called_ns_{0}, cpu_ns_{0}, asleep_since_ns_{0};
  std::atomic<int> thread_{0}, inside_{0};
};

long process_cpu_ns();

}  // namespace standin
