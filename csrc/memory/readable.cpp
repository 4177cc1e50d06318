#include "memory/readable.hpp"

#include <algorithm>
#include <cstring>

#include "memory/kept_input.hpp"
#include "memory/payload.hpp"

namespace ringcomm {
namespace {

// Bytes of all blocks, found by measuring: of less, two copies that overlap take no longer than one by the kernel; of
// more, that one is the slower, as the kernel knows no stores past the caches.
constexpr std::size_t kReadFrom = 1 << 20, kReadTo = 8 << 20;

enum class Lies : std::uint64_t { staging, arena, own_memory };

struct Note {
  Lies lies = Lies::staging;
  std::uint64_t where = 0;     // offset, or address
  std::uint64_t can_read = 0;  // 1: this rank can read everybody's own memory
  MemoryCard card;
  // of an all-to-all, behind it: where in the input the block for each rank starts, in bytes
};

bool gives(const Call& call, int rank) { return call.collective != Collective::broadcast || call.root == rank; }

// What several would read is in the caches once its giver has copied it into staging memory: from there they copy
// faster than the kernel does. So does an all-to-all, found by measuring.
bool worth_reading(const Call& call, Epochs& epochs) {
  const std::size_t nbytes = call.nbytes();
  return call.collective == Collective::allgather && epochs.node().size() == 2 && nbytes >= kReadFrom &&
         nbytes < kReadTo;
}

std::byte* note_of(Epochs& epochs, int rank, std::size_t taken) {
  return epochs.mailbox(rank).payload[epochs.parity()] + taken;
}

Note note_from(Epochs& epochs, int rank, std::size_t taken) {
  Note note;
  std::memcpy(&note, note_of(epochs, rank, taken), sizeof note);
  return note;
}

}  // namespace

bool Readable::fits(const Call& call, int ranks, std::size_t taken) {
  const bool starts = call.collective == Collective::alltoall;
  return taken + sizeof(Note) + (starts ? static_cast<std::size_t>(ranks) * sizeof(std::uint64_t) : 0) <= kPayload - 8;
}

bool Readable::publish(Epochs& epochs, const Call& call, std::size_t taken) {
  const int me = epochs.node().rank();
  Note note;
  note.card = epochs.memory.card();
  note.can_read = epochs.reads_peers.value_or(false) ? 1 : 0;
  if (gives(call, me) && !overwrites_input(call, me)) {
    const std::uint64_t offset = epochs.node().offset_of(call.input, payload_bytes(call, me));
    if (offset != kPrivate)
      note.lies = Lies::arena, note.where = offset;
    else if (note.can_read && worth_reading(call, epochs))
      note.lies = Lies::own_memory, note.where = reinterpret_cast<std::uint64_t>(call.input);
  }
  std::byte* const to = note_of(epochs, me, taken);
  std::memcpy(to, &note, sizeof note);
  std::uint64_t start = 0;
  for (std::size_t rank = 0; call.collective == Collective::alltoall && rank < call.counts.size(); ++rank) {
    std::memcpy(to + sizeof note + rank * sizeof start, &start, sizeof start);
    start += call.counts[rank] * size_of(call.dtype);
  }
  return note.lies != Lies::staging;
}

std::optional<std::vector<ReadableBlock>> Readable::collect(Epochs& epochs, const Call& call, std::size_t taken,
                                                            bool& any) {
  const int ranks = epochs.node().size();
  const std::size_t item = size_of(call.dtype);
  bool all = true, own_memory = false, everybody_reads = true;
  std::vector<MemoryCard> cards;
  any = false;
  for (int rank = 0; rank < ranks; ++rank) {
    const Note note = note_from(epochs, rank, taken);
    cards.push_back(note.card);
    everybody_reads &= note.can_read == 1;
    if (!gives(call, rank)) continue;
    any |= note.lies != Lies::staging;
    all &= note.lies != Lies::staging;
    own_memory |= note.lies == Lies::own_memory;
  }
  if (worth_reading(call, epochs) && !epochs.reads_peers)
    epochs.reads_peers = std::ranges::all_of(cards, &PeerMemory::readable);
  if (!all || (own_memory && !everybody_reads)) return std::nullopt;

  std::vector<ReadableBlock> blocks;
  const int me = epochs.node().rank();
  for (int turn = 0; turn < ranks; ++turn) {  // each rank begins with its own, so that no two read the same at once
    const int rank = (me + turn) % ranks;
    if (!gives(call, rank)) continue;
    const auto index = static_cast<std::size_t>(rank);
    const Note note = note_from(epochs, rank, taken);
    std::uint64_t start = 0;
    std::size_t first = 0, count = call.count;
    if (call.collective == Collective::allgather) first = start_of(call.counts, rank), count = call.counts[index];
    if (call.collective == Collective::alltoall) {
      first = start_of(call.receive_counts, rank), count = call.receive_counts[index];
      std::memcpy(&start, note_of(epochs, rank, taken) + sizeof note + static_cast<std::size_t>(me) * sizeof start,
                  sizeof start);
    }
    ReadableBlock block{rank, nullptr, note.card, 0, at(call.output, first * item), count * item};
    if (rank == me)
      block.here = at(call.input, start);
    else if (note.lies == Lies::arena)
      block.here = epochs.node().at(rank, note.where + start);
    else
      block.there = note.where + start;
    if (block.nbytes > 0 && block.here != block.target) blocks.push_back(block);
  }
  return blocks;
}

}  // namespace ringcomm
