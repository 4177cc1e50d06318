// Implements Readable: notes in mailboxes about the location of data, and the choice between
// staging and reading in place.
#include "host_collectives/readable.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/clock.hpp"
#include "host_collectives/kept_input.hpp"
#include "host_collectives/payload.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kReadFrom = 16 << 10;  // bytes of all blocks; a system call is too costly for less
constexpr std::size_t kSizes = 64;
constexpr std::size_t kBriefly = 64 << 10;  // bytes that are copied within a few microseconds

bool gives(const Call& call, int rank) { return call.collective != Collective::broadcast || call.root == rank; }

// Returns the key of the call in the tuner; empty if the data is too short to be read in place. The
// key is equal on all ranks. For uneven blocks it is a constant, because ranks know different
// sizes.
std::optional<std::size_t> kind_of(const Call& call) {
  if (call.collective == Collective::alltoall && !call.even) return 0;
  const std::size_t nbytes = call.nbytes();
  if (nbytes < kReadFrom) return std::nullopt;
  const std::size_t which = call.collective == Collective::broadcast   ? 0
                            : call.collective == Collective::allgather ? 1
                                                                       : 2;
  return which * kSizes + static_cast<std::size_t>(std::bit_width(nbytes));
}

}  // namespace

std::size_t Readable::note_bytes(const Call& call, int ranks) {
  const bool starts = call.collective == Collective::alltoall;
  return sizeof(Note) + (starts ? static_cast<std::size_t>(ranks) * sizeof(std::uint64_t) : 0);
}

bool Readable::fits(const Call& call, int ranks, std::size_t taken) {
  return taken + note_bytes(call, ranks) <= kPayload - 8;
}

Readable::Readable(Epochs& epochs, const Call& call, std::size_t taken)
    : epochs_(epochs), call_(call), taken_(taken), data_(taken + note_bytes(call, epochs.node().size())),
      mine_(payload_bytes(call, epochs.node().rank())), received_(total(call.receive_counts) * size_of(call.dtype)),
      small_(call.collective == Collective::alltoall && mine_ <= room()),
      notes_(static_cast<std::size_t>(epochs.node().size())), kind_(kind_of(call)),
      asks_(kind_ && epochs.all_read && epochs.reading.use_second(*kind_)), since_ns_(small_ ? 0 : now_ns()) {}

std::size_t Readable::room() const { return kPayload - 8 - data_; }

bool Readable::brief() const { return small_ && received_ <= kBriefly; }

std::byte* Readable::note_of(int rank) const { return epochs_.mailbox(rank).payload[epochs_.parity()] + taken_; }

// Reads the notes of all peers. This rank does not read its own mailbox (see Epochs::header_of()).
void Readable::read_notes() {
  for (int rank = 0; rank < epochs_.node().size(); ++rank) {
    if (rank != epochs_.node().rank())
      std::memcpy(&notes_[static_cast<std::size_t>(rank)], note_of(rank), sizeof(Note));
  }
}

bool Readable::publish() {
  const int me = epochs_.node().rank();
  Note& note = notes_[static_cast<std::size_t>(me)];
  note.card = epochs_.memory.card();
  note.can_read = epochs_.reads_peers.value_or(false) ? 1 : 0;
  if (kind_) note.times = epochs_.reading.report(*kind_);
  if (small_) {
    note.location = mine_ > 0 ? Note::Location::payload : Note::Location::none;
    // A rank without data does not know the lengths of the others' inputs. If it receives so much
    // that these probably fit no payload, it opens its staging memory, as they do.
    note.where = asks_ || received_ * static_cast<std::size_t>(epochs_.node().size()) <= room() ? 1 : 0;
    kernels::copy(note_of(me) + data_ - taken_, call_.input, mine_);
    epochs_.copied += mine_;
  } else if (gives(call_, me) && !overwrites_input(call_, me)) {
    const std::uint64_t offset = epochs_.node().offset_of(call_.input, mine_);
    if (offset != kPrivate)
      note.location = Note::Location::arena, note.where = offset;
    else if (asks_)
      note.location = Note::Location::own_memory, note.where = reinterpret_cast<std::uint64_t>(call_.input);
  }
  std::byte* const to = note_of(me);
  std::memcpy(to, &note, sizeof note);
  std::uint64_t start = 0;
  for (std::size_t rank = 0; call_.collective == Collective::alltoall && rank < call_.counts.size(); ++rank) {
    std::memcpy(to + sizeof note + rank * sizeof start, &start, sizeof start);
    start += call_.counts[rank] * size_of(call_.dtype);
  }
  return needs_no_staging(note);
}

bool Readable::needs_no_staging(const Note& note) {
  return note.location == Note::Location::none ? note.where == 1 : note.location != Note::Location::staging;
}

// Merges the notes of all ranks: which ranks can read, and their times. These decide the route of
// later calls, unless all data is in payloads.
void Readable::merge() {
  in_payloads_ = true;
  for (int rank = 0; rank < epochs_.node().size() && in_payloads_; ++rank) {
    const Note::Location location = note_from(rank).location;
    in_payloads_ = location == Note::Location::payload || location == Note::Location::none;
  }
  if (!kind_ || in_payloads_) return;
  bool all_read = true;
  counts_ = epochs_.all_read;
  PathTuner::Times slowest{};
  bool reads_peers = epochs_.reads_peers.value_or(true);
  for (int rank = 0; rank < epochs_.node().size(); ++rank) {
    const Note& note = note_from(rank);
    if (!epochs_.reads_peers) reads_peers = reads_peers && PeerMemory::readable(note.card);
    all_read &= note.can_read == 1;
    counts_ &= note.location != Note::Location::arena;  // a call with data in an arena uses neither path
    for (std::size_t way = 0; way < slowest.size(); ++way) slowest[way] = std::max(slowest[way], note.times[way]);
  }
  if (counts_) epochs_.reading.merge(*kind_, slowest);
  epochs_.all_read = all_read;
  epochs_.reads_peers = reads_peers;
}

std::optional<std::vector<ReadableBlock>> Readable::collect(bool& any) {
  read_notes();
  merge();
  const int ranks = epochs_.node().size(), me = epochs_.node().rank();
  bool all = true;
  any = false;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!gives(call_, rank)) continue;
    const Note& note = note_from(rank);
    any |= needs_no_staging(note);
    all &= note.location != Note::Location::staging;
  }
  if (counts_) since_ns_ = now_ns();
  if (!all) return std::nullopt;
  std::vector<ReadableBlock> blocks;
  // Each rank begins with its own block, so that no two ranks read the same block at the same time.
  for (int turn = 0; turn < ranks; ++turn) {
    const int rank = (me + turn) % ranks;
    if (!gives(call_, rank)) continue;
    const ReadableBlock block = block_of(rank);
    if (block.nbytes > 0 && block.here != block.target) blocks.push_back(block);
  }
  return blocks;
}

ReadableBlock Readable::block_of(int rank) const {
  const int me = epochs_.node().rank();
  const std::size_t item = size_of(call_.dtype), index = static_cast<std::size_t>(rank);
  const Note& note = note_from(rank);
  std::uint64_t start = 0;
  std::byte* target = at(call_.output, 0);
  std::size_t count = call_.count;
  if (call_.collective == Collective::allgather) target = call_.part_from(rank), count = call_.counts[index];
  if (call_.collective == Collective::alltoall) {
    target += start_of(call_.receive_counts, rank) * item, count = call_.receive_counts[index];
    if (rank == me)
      start = start_of(call_.counts, me) * item;
    else
      std::memcpy(&start, note_of(rank) + sizeof note + static_cast<std::size_t>(me) * sizeof start, sizeof start);
  }
  ReadableBlock block{rank, nullptr, note.card, 0, target, count * item};
  if (note.location == Note::Location::payload && (rank != me || overwrites_input(call_, me)))
    block.here = note_of(rank) + data_ - taken_ + start;
  else if (rank == me)
    block.here = at(call_.input, start);
  else if (note.location == Note::Location::arena)
    block.here = epochs_.node().at(rank, note.where + start);
  else
    block.there = note.where + start;
  return block;
}

void Readable::rest() {
  if (since_ns_ != 0) spent_ns_ += now_ns() - since_ns_;
}

void Readable::done() {
  if (!counts_) return;
  rest();
  const double nbytes = static_cast<double>(std::max<std::size_t>(call_.nbytes(), 1));
  epochs_.reading.record(*kind_, asks_, static_cast<double>(spent_ns_) / nbytes);
}

}  // namespace ringcomm
