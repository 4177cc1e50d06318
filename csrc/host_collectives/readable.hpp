// Data that its giver lets the host's ranks read where it lies, in its arena or, where the system allows it, in its own
// memory: then collectives that only move data copy each byte once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/call.hpp"
#include "shm/epochs.hpp"

namespace ringcomm {

// A block for this rank, and where its giver has it.
struct ReadableBlock {
  int giver = 0;
  const std::byte* here = nullptr;  // in an arena; null: in the giver's own memory, there
  MemoryCard card;
  std::uint64_t there = 0;
  std::byte* target = nullptr;
  std::size_t nbytes = 0;
};

// A broadcast, an all-gather or an all-to-all of which data may be read in place; in a rank's mailbox from `taken` on.
class Readable {
 public:
  // Whether there is room for the note behind `taken` bytes of a mailbox's payload, and before its last word; the same
  // on all ranks.
  static bool fits(const Call& call, int ranks, std::size_t taken);

  Readable(Epochs& epochs, const Call& call, std::size_t taken);
  // Says where this rank's data lies. False, and says so, if it gives some and that is for staging memory.
  bool publish();
  // What this rank reads, once all have arrived. Nothing if not everybody can read all; `any`: whether some rank has
  // put nothing into its staging memory.
  std::optional<std::vector<ReadableBlock>> collect(bool& any);
  void rest();  // the rank waits, which is none of the call's time
  void done();  // the call is

 private:
  struct Note;
  std::byte* note_of(int rank) const;
  Note note_from(int rank) const;
  void merge();
  ReadableBlock block_of(int rank) const;

  Epochs& epochs_;
  const Call& call_;
  const std::size_t taken_;
  const std::optional<std::size_t> kind_;  // of calls worth reading for
  const bool asks_;                        // for reading ranks' own memory
  bool counts_ = false;                    // as a trial
  std::int64_t since_ns_, spent_ns_ = 0;
};

}  // namespace ringcomm
