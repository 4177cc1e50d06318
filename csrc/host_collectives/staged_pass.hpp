// Runs a collective on private arrays of a host, segment by segment, through staging memory that
// the ranks share.
//
// Before its arrival 0, at the call, a rank copies in segment 0. In turn t it waits until all ranks
// have made arrival t, works on segment t, copies in segment t+1, arrives (t+1), and finishes
// segment t-1:
//
//   turn      |      0 |      1 |      2 |      3 |      4      a call of four segments
//   work      |      0 |      1 |      2 |      3 |
//   copy in   |      1 |      2 |      3 |        |
//   arrive    |      1 |      2 |      3 |      4 |
//   finish    |        |      0 |      1 |      2 |      3
//
// So arrival t means: segment t is copied in, and segment t-1 is worked on. Collectives that only
// move data end with the last work. Collectives that reduce leave results in all ranks' inputs,
// arrive once more, and copy the results out in `finish`.
// In two-level collectives a segment is between hosts for some time. The depth d is the number of
// segments that may be there at the same time. Arrival t+1 waits until has_result(t-d): until then
// segment t-d is between hosts. `finish` follows d turns later. With depth 1:
//
//   turn      |      0 |      1 |      2 |      3 |      4 |      5
//   work      |      0 |      1 |      2 |      3 |        |
//   copy in   |      1 |      2 |      3 |        |        |
//   result    |        |      0 |      1 |      2 |      3 |
//   arrive    |      1 |      2 |      3 |      4 |      5 |
//   finish    |        |        |      0 |      1 |      2 |      3
//
// No input is overwritten while it is needed, for these reasons (d = 0). An input is one of three
// that segments use in turn, over all calls, so "copy in t" overwrites segment t-3.
//   Peers read that segment last in their work t-3, before their arrival t-2, for which this rank has waited.
//   This rank reads it last in its finish t-3, in turn t-2, before it copies segment t in, in turn t-1.
//   The first segment of a call is copied in after the end of the call before.
//   With a depth, peers read inputs in their finish k too, before their arrival k+d+3: there are d+4 inputs.
//   The offsets of inputs are fixed by the memory's header and never overlap, whatever the calls' counts.
//   Memory that is outgrown is freed in turn 0 of the call that outgrew it: every peer is done with the call before.
// test_memory_pass.cpp (mixed_calls) checks this with random delays of ranks, also under a race
// detector; test_two_level_others.cpp checks it with depths.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/call.hpp"
#include "base/error.hpp"
#include "base/task.hpp"
#include "host_collectives/staging_area.hpp"
#include "kernels/kernels.hpp"
#include "shm/epochs.hpp"

namespace ringcomm {

class StagedPass : public Task {
 public:
  // `reduces`: work() leaves results that finish() copies out. `inputs`: bytes of staging memory
  // that this rank's first segment needs. `depth`: segments that may be in flight between their
  // work and their result.
  StagedPass(Epochs& epochs, const Call& call, bool reduces, std::size_t inputs, std::size_t depth = 0);
  ~StagedPass() override;
  void open();                      // before the arrival at the call
  void begin(std::uint32_t epoch);  // all ranks have opened the call and arrived
  void begin_late();                // the same if some ranks open the call only now: arrives once more
  Progress advance() final;
  void nap(std::chrono::nanoseconds longest) final;

 protected:
  virtual std::size_t segments() = 0;  // equal on all ranks; called after all have arrived
  virtual void copy_in(std::size_t k) = 0;
  virtual void work(std::size_t k) = 0;
  virtual void finish(std::size_t) {}
  // Error kind if ranks of this host get no staging memory.
  virtual ErrorKind refusal() const { return ErrorKind::invalid; }
  virtual bool progress() { return false; }              // called in every turn; true if there was progress
  virtual bool has_result(std::size_t) { return true; }  // true if a segment that was worked on here has its result

  int ranks() const { return node_.size(); }
  int me() const { return node_.rank(); }
  std::byte* input(std::size_t k) { return mine_.input(first_ + k); }
  std::byte* input_of(int rank, std::size_t k) { return areas_[static_cast<std::size_t>(rank)].input(first_ + k); }
  // Copies with stores that bypass the caches. A normal store to a line that a peer has read takes
  // 25 ns, because the peer's copy must be invalidated first. Normal stores wait for this one after
  // another, and prefetching does not help. Bypassing stores do not wait, and later reads are no
  // slower.
  void to_peers(void* target, const void* source, std::size_t nbytes) const {
    kernels::copy(target, source, nbytes, true);
    tally(nbytes);
  }
  void from_peer(void* target, const void* source, std::size_t nbytes) const {
    kernels::copy(target, source, nbytes, past_caches());
    tally(nbytes);
  }
  void tally(std::size_t nbytes) const { epochs_.copied += nbytes; }  // bytes of staging memory, read or written
  // Returns whether the caller's result is larger than the caches. A result that replaces the input
  // is in the caches anyway.
  bool past_caches() const { return segments_ >= kManySegments; }
  Epochs& epochs() { return epochs_; }

  const Call& call_;
  const std::size_t item_;

 private:
  void arrive() { epoch_ = epochs_.publish(); }
  void prepare();
  bool prepare_turns();
  bool find_areas();

  Epochs& epochs_;
  Node& node_;
  const bool reduces_;
  const std::size_t inputs_;
  const std::uint64_t first_;  // segments of earlier calls
  bool opened_ = false;
  std::uint32_t epoch_ = 0;
  std::size_t depth_;
  std::size_t turn_ = 0, segments_ = 0, last_turn_ = 0;
  bool worked_ = false;                   // only the arrival of this turn remains
  std::optional<std::size_t> to_finish_;  // segment that all ranks have worked on; finish() is due
  StagingArea mine_;
  std::vector<StagingArea> areas_;
  std::optional<std::uint64_t> outgrown_;
  std::optional<std::string> refused_;  // why this rank has no staging memory
  std::optional<Error> failure_;        // the error that all ranks throw
};

// Create passes for: any collective but barrier; broadcast and allgather; reducescatter and
// alltoall; scan and exscan.
std::unique_ptr<StagedPass> make_staged_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes);
std::unique_ptr<StagedPass> make_staged_move(Epochs& epochs, const Call& call, std::size_t segment_bytes);
std::unique_ptr<StagedPass> make_staged_exchange(Epochs& epochs, const Call& call, std::size_t segment_bytes);
std::unique_ptr<StagedPass> make_staged_scan(Epochs& epochs, const Call& call, std::size_t segment_bytes);

}  // namespace ringcomm
