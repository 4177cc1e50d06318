// The staged collectives that only move data: broadcast, allgather, alltoall.
#include <cstring>
#include <memory>

#include "memory/staged_kinds.hpp"
#include "schedule/schedule.hpp"

namespace ringcomm {
namespace {

class Broadcast final : public StagedPass {
 public:
  Broadcast(Epochs& epochs, const NodeCall& call)
      : StagedPass(epochs, call, false, epochs.node().rank() == call.root ? segment_bytes(call) : 0) {}

 private:
  static std::size_t segment_bytes(const NodeCall& call) {
    return std::min(call.count, per_segment(call)) * size_of(call.dtype);
  }
  static std::size_t per_segment(const NodeCall& call) {
    return std::max<std::size_t>(1, call.segment_bytes / size_of(call.dtype));
  }
  Part part(std::size_t k) const {
    const std::size_t each = per_segment(call_), first = k * each;
    return {first * item_, std::min(each, call_.count - first) * item_};  // in bytes
  }
  std::size_t segments() override { return std::max<std::size_t>(1, pieces(call_.count, per_segment(call_))); }
  void copy_in(std::size_t k) override {
    if (me() == call_.root) to_peers(input(k), at(call_.input, part(k).first), part(k).count);
  }
  void work(std::size_t k) override {
    if (!call_.gives(me())) return;
    const std::byte* const from = me() == call_.root ? at(call_.input, part(k).first) : input_of(call_.root, k);
    from_peer(at(call_.output, part(k).first), from, part(k).count);
  }
};

class Allgather final : public StagedPass {
 public:
  Allgather(Epochs& epochs, const NodeCall& call)
      : StagedPass(epochs, whole(call), false,
                   std::min(total(call.counts) * size_of(call.dtype), whole(call).segment_bytes)),
        cuts_(call_, call_.counts, 1) {}

 private:
  // A segment is a cut of one block: every rank fills only its own staging memory.
  static NodeCall whole(NodeCall call) {
    call.segment_bytes = std::max(call.segment_bytes / kLine * kLine, std::max(kLine, size_of(call.dtype)));
    return call;
  }
  std::size_t segments() override { return cuts_.number(); }
  std::byte* target(const Part& cut) { return at(call_.output, cut.first * item_); }
  const std::byte* source(const Part& cut) { return at(call_.input, (cut.first - cuts_.start(me())) * item_); }

  void copy_in(std::size_t k) override {
    const Part cut = cuts_.cut(me(), k);
    to_peers(input(k), source(cut), cut.count * item_);
  }
  void work(std::size_t k) override {
    if (!call_.gives(me())) return;
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
class Alltoall final : private KeptInput, public StagedPass {
 public:
  Alltoall(Epochs& epochs, const NodeCall& call)
      : KeptInput(call, epochs.node().rank()),
        StagedPass(epochs, with_kept(call), false, Cuts(call, call.counts, epochs.node().size()).bytes()),
        sent_(call_, call_.counts, ranks()), received_(call_, call_.receive_counts, ranks()) {
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
      if (rank != me()) to_peers(input(k) + sent_.place(rank), at(call_.input, cut.first * item_), cut.count * item_);
    }
  }
  void work(std::size_t k) override {
    if (!call_.gives(me())) return;
    for (int rank = 0; rank < ranks(); ++rank) {
      const Part cut = received_.cut(rank, k);
      const std::byte* const from =
          rank == me() ? at(call_.input, sent_.cut(me(), k).first * item_) : input_of(rank, k) + received_.place(me());
      from_peer(at(call_.output, cut.first * item_), from, cut.count * item_);
    }
  }

  const Cuts sent_, received_;
};

}  // namespace

std::unique_ptr<StagedPass> make_moving_pass(Epochs& epochs, const NodeCall& call) {
  switch (call.collective) {
    case Collective::broadcast:
      return std::make_unique<Broadcast>(epochs, call);
    case Collective::allgather:
      return std::make_unique<Allgather>(epochs, call);
    case Collective::alltoall:
      return std::make_unique<Alltoall>(epochs, call);
    default:
      throw Error(ErrorKind::internal, std::string(name_of(call.collective)) + " does not pass through staging memory");
  }
}

}  // namespace ringcomm
