// Runs collectives in the shared memory of a host. Small buffers are exchanged in the mailboxes,
// within the consistency check. Shared arrays are worked on in place. Other arrays pass through
// staging memory in segments.
#pragma once

#include <cstdint>
#include <memory>

#include "base/call.hpp"
#include "base/task.hpp"
#include "host_collectives/host_arrays.hpp"
#include "host_collectives/staged_pass.hpp"
#include "shm/epochs.hpp"

namespace ringcomm {

// One call, which works in place if every rank's array can be reached, else through staging memory.
// Each rank calls open(), which publishes the location of its data, and then arrives
// (Epochs::publish). After all ranks have arrived and agree, each rank knows the route and calls
// begin().
class MemoryPass : public Task {
 public:
  virtual void open();
  virtual void begin(std::uint32_t epoch);  // after the arrival `epoch` of all ranks
  Progress advance() override { return pass_ ? pass_->advance() : Progress::done; }
  void abandon() noexcept override {
    if (pass_) pass_->abandon();
  }
  void nap(std::chrono::nanoseconds longest) override {
    if (pass_) pass_->nap(longest);
  }

 protected:
  MemoryPass(Epochs& epochs, const Call& call) : epochs_(epochs), call_(call) {}
  virtual std::unique_ptr<StagedPass> through_staging() = 0;
  // Publishes and returns whether this rank's data can stay in place. The call works in place if
  // the data of all ranks can.
  virtual bool publish() { return call_.collective == Collective::allreduce && HostArrays::publish(epochs_, call_); }
  // Called after all ranks have published. Returns null if some rank's data cannot stay in place.
  // Sets `any`: true if the data of at least one rank can.
  virtual std::unique_ptr<Task> in_place(std::uint32_t epoch, bool& any) = 0;

  Epochs& epochs_;
  const Call& call_;
  std::unique_ptr<Task> pass_;  // set by begin()

 private:
  std::unique_ptr<StagedPass> staged_;
};

// Returns whether the call that is expected to follow may run within this one.
bool can_speculate(const Call& call, int ranks);

// Creates the pass of a call on one host, with its speculation if it has one. Call it after
// Epochs::open_call(). `call` must outlive it.
std::unique_ptr<MemoryPass> make_memory_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes);

}  // namespace ringcomm
