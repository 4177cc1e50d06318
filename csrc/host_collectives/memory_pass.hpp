// Collectives over the arenas of a host. Small buffers go with the comparison in the mailboxes, shared arrays are
// worked on where they lie, and others pass through staging memory in segments.
#pragma once

#include <cstdint>
#include <memory>

#include "base/call.hpp"
#include "base/task.hpp"
#include "host_collectives/host_arrays.hpp"
#include "host_collectives/staged_pass.hpp"
#include "shm/epochs.hpp"

namespace ringcomm {

// One call: on the arrays where they lie if every rank's can be reached there, else through staging memory. Every rank
// opens it, where it says what it has, arrives (Epochs::publish), and begins it once all have arrived and agree: then
// each knows which way the data goes.
class MemoryPass : public Task {
 public:
  virtual void open();
  virtual void begin(std::uint32_t epoch);  // after everybody's arrival `epoch`
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
  // Whether this rank's data stays where it lies, in the hope that everybody's does; the rank has said so.
  virtual bool publish() { return call_.collective == Collective::allreduce && HostArrays::publish(epochs_, call_); }
  // Once all have said. Null if some rank's does not; `any`: whether some has.
  virtual std::unique_ptr<Task> in_place(std::uint32_t epoch, bool& any) = 0;

  Epochs& epochs_;
  const Call& call_;
  std::unique_ptr<Task> pass_;  // from begin() on

 private:
  std::unique_ptr<StagedPass> staged_;
};

// Whether the call's guess may take place along with it.
bool can_speculate(const Call& call, int ranks);

// Within one host; with its guess, if it has one; for a call that follows Epochs::open_call(). `call` outlives it.
std::unique_ptr<MemoryPass> make_memory_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes);

}  // namespace ringcomm
