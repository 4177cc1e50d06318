// Runs a call of a channel on its caller's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "collectives/channel.hpp"

namespace ringcomm {

class CallerRun {
 public:
  CallerRun(Channel& channel, Call& call);  // `call` outlives this object, which may change it
  // Returns whether the call is complete after a few polls, which take at most some microseconds.
  // Polls only small calls in shared memory. So the caller may hold a lock, for example Python's,
  // until it calls finish().
  bool poll();
  void finish(bool (*interrupted)());  // runs until complete; polls `interrupted` every 50 ms

 private:
  template <class F>
  bool guarded(F run);
  void count_time() const;

  Channel& channel_;
  const std::string_view collective_;
  const bool brief_;
  std::int64_t begun_ns_ = 0;
  std::unique_ptr<Task> task_;
};

}  // namespace ringcomm
