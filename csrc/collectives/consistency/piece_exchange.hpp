// Exchanges one small piece between all ranks, with a digest of the call to which it belongs. No
// rank knows the sizes of other ranks' pieces in advance. The consistency check by messages
// compares the digests; the pieces carry the data of small calls.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "executor/run_schedule.hpp"
#include "executor/staging.hpp"

namespace ringcomm {

inline constexpr std::size_t kPieceAlign = 16;  // alignment of pieces: kernels read their elements in place

// In round k rank `me` sends all pieces that it has to rank me - 2^k, and receives pieces from rank
// me + 2^k (dissemination: Bruck et al., IEEE Trans. Parallel Distrib. Syst. 8(11), 1997). If there
// are 2^n ranks, it exchanges pieces with rank me ^ 2^k instead (recursive doubling), so that
// pieces can be merged during the exchange. Both take ceil(log2 p) messages in each direction.
// A rank that receives a different digest sends only a notification from then on. In the end all
// ranks notice the difference, because the data that a rank receives depends on every other rank.
// An object runs many exchanges, one after another.
class PieceExchange final : public Task {
 public:
  // Merges two pieces of one size, in the order of ranks. `into` may be either of them.
  using Merge = std::function<void(std::byte* into, const std::byte* lower, const std::byte* upper)>;
  static bool can_merge(std::size_t ranks) { return std::has_single_bit(ranks); }

  // `peers` must outlive this object. `most`: bytes of the longest piece of any rank; equal on all
  // ranks.
  PieceExchange(Transport& transport, std::span<const int> peers, int me, std::size_t most);
  ~PieceExchange() override { abandon(); }
  // Begins a new exchange. Returns the address to which this rank writes its piece.
  std::byte* open(int tag);
  // Posts the piece, of `nbytes` bytes (equal on all ranks if pieces are merged). Among ranks with
  // equal digests, all pass `merge` or no rank does. identical() returns false unless the balances
  // of all ranks add up to 0.
  void post(std::uint64_t digest, std::size_t nbytes, Merge merge = {}, std::uint32_t balance = 0);
  void post_nothing();  // instead of post(): a digest that equals no other rank's
  Progress advance() override;
  void abandon() noexcept override;

  // Valid when done.
  bool identical() const { return identical_; }  // all digests are equal, and the balances add up to 0
  std::span<const std::byte* const> pieces() const { return found_; }  // if identical(): by rank; if merged, one piece

 private:
  struct Head {
    std::uint64_t digest;
    std::uint32_t nbytes, balance;
  };
  std::byte* mine() { return pieces_.data() + sizeof(Head); }
  std::size_t behind(std::size_t begin, std::size_t count) const;  // end of `count` pieces
  std::size_t coming() const { return std::min(held_, peers_.size() - held_); }
  void start_round();
  void end_round();
  void find();

  Transport& transport_;
  const std::span<const int> peers_;
  const int me_;
  const bool doubles_;
  const std::size_t most_;
  int tag_ = 0;
  Staging pieces_;                  // pieces of rank me and the following ranks, consecutively
  std::size_t held_ = 0, end_ = 0;  // pieces that this rank has, counting each merged one; bytes
  std::size_t arrived_ = 0;         // bytes received in a round that still sends
  Ticket sending_ = kNoTicket, receiving_ = kNoTicket;
  Merge merge_;
  bool identical_ = true;
  std::vector<const std::byte*> found_;
};

}  // namespace ringcomm
