// The staged collectives that only move data: broadcast, allgather, alltoall.
#include <cstring>
#include <memory>

#include "memory/kept_input.hpp"
#include "memory/staged_pass.hpp"

namespace ringcomm {
namespace {

class Broadcast final : public StagedPass {
 public:
  Broadcast(Epochs& epochs, const Call& call, const Cuts& cuts)
      : StagedPass(epochs, call, false,
                   epochs.node().rank() == call.root ? cuts.longest_cut() * size_of(call.dtype) : 0),
        cuts_(cuts) {}

 private:
  std::size_t segments() override { return cuts_.segments(); }
  const std::byte* source(const Part& cut) const { return at(call_.input, cut.first * item_); }
  void copy_in(std::size_t k) override {
    const Part cut = cuts_.cut(k);
    if (me() == call_.root) to_peers(input(k), source(cut), cut.count * item_);
  }
  void work(std::size_t k) override {
    const Part cut = cuts_.cut(k);
    const std::byte* const from = me() == call_.root ? source(cut) : input_of(call_.root, k);
    from_peer(at(call_.output, cut.first * item_), from, cut.count * item_);
  }

  const Cuts cuts_;
};

// Every rank fills only its own staging memory: its segments hold cuts of its own block.
class Allgather final : public StagedPass {
 public:
  Allgather(Epochs& epochs, const Call& call, Cuts cuts)
      : StagedPass(epochs, call, false, cuts.longest_cut() * size_of(call.dtype)), cuts_(std::move(cuts)) {}

 private:
  std::size_t segments() override { return cuts_.segments(); }
  std::byte* target(const Part& cut) { return at(call_.output, cut.first * item_); }
  const std::byte* source(const Part& cut) { return at(call_.input, (cut.first - cuts_.start(own_)) * item_); }

  void copy_in(std::size_t k) override {
    const Part cut = cuts_.cut(own_, k);
    to_peers(input(k), source(cut), cut.count * item_);
  }
  void work(std::size_t k) override {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Part cut = cuts_.cut(static_cast<std::size_t>(rank), k);
      if (rank != me())
        from_peer(target(cut), input_of(rank, k), cut.count * item_);
      else if (cut.count > 0 && target(cut) != source(cut))
        std::memmove(target(cut), source(cut), cut.count * item_);
    }
  }

  const Cuts cuts_;
  const std::size_t own_ = static_cast<std::size_t>(me());  // block
};

// Ranks know only their own row and column of the matrix of counts: each tells its longest block beside its opening.
class Alltoall final : public StagedPass {
 public:
  Alltoall(Epochs& epochs, const Call& call, Cuts sent, Cuts received)
      : StagedPass(epochs, call, false, sent.segment() * size_of(call.dtype)), given_(call, me()),
        sent_(std::move(sent)), received_(std::move(received)) {
    const std::uint64_t longest = sent_.longest();
    std::memcpy(payload(me()), &longest, sizeof longest);
  }

 private:
  std::byte* payload(int rank) { return epochs().mailbox(rank).payload[epochs().parity()]; }
  std::size_t segments() override {
    std::size_t longest = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      std::uint64_t its = 0;
      std::memcpy(&its, payload(rank), sizeof its);
      longest = std::max<std::size_t>(longest, its);
    }
    return cuts_in(longest, sent_.each());
  }
  void copy_in(std::size_t k) override {
    for (std::size_t rank = 0; rank < sent_.blocks(); ++rank) {
      const Part cut = sent_.cut(rank, k);
      if (rank == own_) continue;
      to_peers(input(k) + sent_.slot(rank) * item_, given_.from(cut.first * item_), cut.count * item_);
    }
  }
  void work(std::size_t k) override {
    for (int rank = 0; rank < ranks(); ++rank) {
      const Part cut = received_.cut(static_cast<std::size_t>(rank), k);
      const std::byte* const from = rank == me() ? given_.from(sent_.cut(own_, k).first * item_)
                                                 : input_of(rank, k) + received_.slot(own_) * item_;
      from_peer(at(call_.output, cut.first * item_), from, cut.count * item_);
    }
  }

  const KeptInput given_;
  const Cuts sent_, received_;                              // cuts of one length
  const std::size_t own_ = static_cast<std::size_t>(me());  // block
};

}  // namespace

std::unique_ptr<StagedPass> make_moving_pass(Epochs& epochs, const Call& call, std::size_t segment_bytes) {
  const std::size_t item = size_of(call.dtype);
  switch (call.collective) {
    case Collective::broadcast:
      return std::make_unique<Broadcast>(epochs, call, Cuts(call.count, cut_for(segment_bytes, item)));
    case Collective::allgather:
      return std::make_unique<Allgather>(epochs, call, Cuts(call.counts, cut_for(segment_bytes, item)));
    case Collective::alltoall: {
      const std::size_t each = cut_for(segment_bytes, item, call.counts.size());
      return std::make_unique<Alltoall>(epochs, call, Cuts(call.counts, each), Cuts(call.receive_counts, each));
    }
    default:
      throw Error(ErrorKind::internal, std::string(name_of(call.collective)) + " does not pass through staging memory");
  }
}

}  // namespace ringcomm
