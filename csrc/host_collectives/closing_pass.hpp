// A pass that ends with an arrival: each rank does its part and arrives, and is done when all ranks
// of its host have arrived.
#pragma once

#include "base/task.hpp"
#include "shm/epochs.hpp"

namespace ringcomm {

class ClosingPass : public Task {
 public:
  Progress advance() final {
    if (!worked_) {
      if (const Progress progress = work(); progress != Progress::done) return progress;
      epoch_ = epochs_.publish();
      worked_ = true;
    }
    return epochs_.reached(epoch_) ? Progress::done : Progress::blocked;
  }
  void nap(std::chrono::nanoseconds longest) final {
    if (worked_)
      epochs_.sleep(epoch_, longest.count());
    else
      Task::nap(longest);
  }

 protected:
  explicit ClosingPass(Epochs& epochs) : epochs_(epochs) {}
  virtual Progress work() = 0;  // does a part of this rank's work; done: no work is left

  Epochs& epochs_;

 private:
  bool worked_ = false;
  std::uint32_t epoch_ = 0;
};

}  // namespace ringcomm
