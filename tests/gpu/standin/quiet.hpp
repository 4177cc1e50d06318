// How long the process has had the chance to call again and has not. Time in which the thread that called last was
// ready to run, but others had the cores, does not count: otherwise a busy machine would change what runs before what.
#pragma once

#include <atomic>

namespace standin {

class Quiet {
 public:
  void called();
  void inside(bool yes);         // a call is under way, and does not wait for the device: not quiet
  bool lasts(long nanoseconds);  // since the last call

 private:
  std::atomic<long> called_ns_{0}, cpu_ns_{0}, asleep_since_ns_{0};
  std::atomic<int> thread_{0}, inside_{0};
};

long process_cpu_ns();

}  // namespace standin
