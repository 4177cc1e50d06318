// The staged collectives that only move data: broadcast, allgather, alltoall.
#include <cstring>
#include <memory>

#include "memory/staged_kinds.hpp"
#include "schedule/schedule.hpp"

namespace ringcomm {
namespace {

class Broadcast final : public StagedPass {
 public:
  Broadcast(Epochs& epochs, const Call& call, std::size_t segment_bytes)
      : StagedPass(epochs, call, false, epochs.node().rank() == call.root ? longest(call, segment_bytes) : 0),
        each_(per_segment(call, segment_bytes)) {}

 private:
  static std::size_t per_segment(const Call& call, std::size_t segment_bytes) {
    return std::max<std::size_t>(1, segment_bytes / size_of(call.dtype));
  }
  static std::size_t longest(const Call& call, std::size_t segment_bytes) {
    return std::min(call.count, per_segment(call, segment_bytes)) * size_of(call.dtype);
  }
  Part part(std::size_t k) const {
    const std::size_t first = k * each_;
    return {first * item_, std::min(each_, call_.count - first) * item_};  // in bytes
  }
  std::size_t segments() override { return std::max<std::size_t>(1, pieces(call_.count, each_)); }
  void copy_in(std::size_t k) override {
    if (me() == call_.root) to_peers(input(k), at(call_.input, part(k).first), part(k).count);
  }
  void work(std::size_t k) override {
    const std::byte* const from = me() == call_.root ? at(call_.input, part(k).first) : input_of(call_.root, k);
    from_peer(at(call_.output, part(k).first), from, part(k).count);
  }

  const std::size_t each_;  // elements
};

class Allgather final : public StagedPass {
 public:
  Allgather(Epochs& epochs, const Call& call, std::size_t segment_bytes)
      : StagedPass(epochs, call, false,
                   std::min(total(call.counts) * size_of(call.dtype), std::max(segment_bytes / kLine * kLine, kLine))),
        cuts_(call.counts, item_, 1, segment_bytes) {}

 private:
  // A segment is a cut of one block: every rank fills only its own staging memory.
  std::size_t segments() override { return cuts_.number(); }
  std::byte* target(const Part& cut) { return at(call_.output, cut.first * item_); }
  const std::byte* source(const Part& cut) { return at(call_.input, (cut.first - cuts_.start(me())) * item_); }

  void copy_in(std::size_t k) override {
    const Part cut = cuts_.cut(me(), k);
    to_peers(input(k), source(cut), cut.count * item_);
  }
  void work(std::size_t k) override {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Part cut = cuts_.cut(rank, k);
      if (rank != me())
        from_peer(target(cut), input_of(rank, k), cut.count * item_);
      else if (cut.count > 0 && target(cut) != source(cut))
        std::memmove(target(cut), source(cut), cut.count * item_);
    }
  }

  const Cuts cuts_;
};

// Ranks know only their own row and column of the matrix of counts: each tells its longest block beside its opening.
class Alltoall final : public StagedPass {
 public:
  Alltoall(Epochs& epochs, const Call& call, const Cuts& sent, std::size_t segment_bytes)
      : StagedPass(epochs, call, false, sent.bytes()), given_(call, me()), sent_(sent),
        received_(call.receive_counts, item_, ranks(), segment_bytes) {
    const std::uint64_t longest = sent_.longest();
    std::memcpy(this->epochs().mine().payload[place()], &longest, sizeof longest);
  }

 private:
  std::size_t segments() override {
    std::size_t longest = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      std::uint64_t its = 0;
      std::memcpy(&its, epochs().mailbox(rank).payload[place()], sizeof its);
      longest = std::max<std::size_t>(longest, its);
    }
    return sent_.number_of(longest);
  }
  void copy_in(std::size_t k) override {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Part cut = sent_.cut(rank, k);
      if (rank != me()) to_peers(input(k) + sent_.place(rank), given_.from(cut.first * item_), cut.count * item_);
    }
  }
  void work(std::size_t k) override {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Part cut = received_.cut(rank, k);
      const std::byte* const from =
          rank == me() ? given_.from(sent_.cut(me(), k).first * item_) : input_of(rank, k) + received_.place(me());
      from_peer(at(call_.output, cut.first * item_), from, cut.count * item_);
    }
  }

  const KeptInput given_;
  const Cuts sent_, received_;
};

}  // namespace

std::unique_ptr<StagedPass> make_moving_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  switch (call.collective) {
    case Collective::broadcast:
      return std::make_unique<Broadcast>(epochs, call, segment_bytes);
    case Collective::allgather:
      return std::make_unique<Allgather>(epochs, call, segment_bytes);
    case Collective::alltoall:
      return std::make_unique<Alltoall>(
          epochs, call, Cuts(call.counts, size_of(call.dtype), epochs.node().size(), segment_bytes), segment_bytes);
    default:
      throw Error(ErrorKind::internal, std::string(name_of(call.collective)) + " does not pass through staging memory");
  }
}

}  // namespace ringcomm
