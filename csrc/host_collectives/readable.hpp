// Handles data that the host's ranks may read in place: in the sender's arena or, if the system
// permits it, in its private memory. Collectives that only move data then copy each byte once.
// Short inputs of an all-to-all, a gather or a scatter are in the payloads of mailboxes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/call.hpp"
#include "shm/epochs.hpp"

namespace ringcomm {

// A block for this rank, and its location at the sender.
struct ReadableBlock {
  int giver = 0;
  const std::byte* here = nullptr;  // address in shared memory; null if in the sender's private memory, at `there`
  MemoryCard card;
  std::uint64_t there = 0;
  std::byte* target = nullptr;
  std::size_t nbytes = 0;
};

// A broadcast, an all-gather or an all-to-all that may be read in place. Its note is in the payload
// of the rank's mailbox, at offset `taken`.
class Readable {
 public:
  // Returns whether the note fits into a payload, behind `taken` bytes and before the last word,
  // which staged_exchange.cpp uses. Equal on all ranks.
  static bool fits(const Call& call, int ranks, std::size_t taken);

  Readable(Epochs& epochs, const Call& call, std::size_t taken);
  // Publishes the location of this rank's data. Returns false if this rank must open its staging
  // memory, because its data may have to go through it.
  bool publish();
  // Returns the blocks that this rank reads. Call it after all ranks have arrived. Returns an empty
  // value if some rank's data cannot be read in place. Sets `any`: true if at least one rank has
  // not opened its staging memory.
  std::optional<std::vector<ReadableBlock>> collect(bool& any);
  // This rank's data is in its payload, and it receives so little that copying it is brief.
  bool brief() const;
  // The data of all ranks is in payloads. The call then ends without a further arrival.
  bool in_payloads() const { return in_payloads_; }
  void rest();  // stops measuring the call's time, while the rank waits
  void done();  // ends the call, and records its time

 private:
  struct Note {
    // payload: behind the note, for an all-to-all; none: the rank has no data
    enum class Location : std::uint64_t { staging, arena, own_memory, payload, none };
    Location location = Location::staging;
    // Offset in the arena, or address in private memory. none: 1 if the rank opens no staging
    // memory.
    std::uint64_t where = 0;
    std::uint64_t can_read = 0;  // 1: this rank can read the private memory of all its peers
    PathTuner::Times times{};    // times of calls of this kind
    MemoryCard card;
    // For an all-to-all, the note is followed by the start of each rank's block in the input, in
    // bytes.
  };
  static std::size_t note_bytes(const Call& call, int ranks);
  static bool needs_no_staging(const Note& note);
  std::size_t room() const;  // bytes of data that fit behind the note
  std::byte* note_of(int rank) const;
  const Note& note_from(int rank) const { return notes_[static_cast<std::size_t>(rank)]; }
  void read_notes();
  void merge();
  ReadableBlock block_of(int rank) const;

  Epochs& epochs_;
  const Call& call_;
  const std::size_t taken_, data_;     // offsets in a payload: of the note, of the data behind it
  const std::size_t mine_, received_;  // bytes of this rank's input; of an all-to-all's output
  const bool small_;
  std::vector<Note> notes_;                // by rank; before collect(), only this rank's
  const std::optional<std::size_t> kind_;  // key in the tuner; empty: data is too short
  const bool asks_;                        // peers may read this rank's private memory
  bool counts_ = false;                    // the tuner records the call's time
  bool in_payloads_ = false;
  std::int64_t since_ns_, spent_ns_ = 0;  // since_ns_ 0: not measured
};

}  // namespace ringcomm
