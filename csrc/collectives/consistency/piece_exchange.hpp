// The exchange of one small piece between all ranks, with a digest of the call that it belongs to. No rank knows the
// sizes of the others' pieces in advance. The consistency check by messages compares the digests; the pieces carry the
// data of small calls.
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

inline constexpr std::size_t kPieceAlign = 16;  // of pieces: kernels read their elements in place

// In each round a rank sends all that it has: to rank me - 2^k, and gets as much from me + 2^k (dissemination: Bruck et
// al., IEEE Trans. Parallel Distrib. Syst. 8(11), 1997); of 2^n ranks, to and from rank me ^ 2^k (recursive doubling),
// so that pieces can be merged into one on the way. ceil(log2 p) messages each way. Who receives another digest than
// its own sends no pieces from then on, only word of it: every rank receives something of every other, so all know in
// the end. Many exchanges, one after another.
class PieceExchange final : public Task {
 public:
  // Both pieces, in the order of ranks, into one of the same size, which may be either.
  using Merge = std::function<void(std::byte* into, const std::byte* lower, const std::byte* upper)>;
  static bool can_merge(std::size_t ranks) { return std::has_single_bit(ranks); }

  // `peers` outlive it. `most`: bytes of the longest piece that any rank may have; the same on all ranks.
  PieceExchange(Transport& transport, std::span<const int> peers, int me, std::size_t most);
  ~PieceExchange() override { abandon(); }
  // A new exchange. Returns where this rank's piece is to be written.
  std::byte* open(int tag);
  // Of which nbytes are there, the same on all ranks if pieces are merged. Ranks of one digest all merge, or none.
  // All ranks' balances have to add up to 0.
  void post(std::uint64_t digest, std::size_t nbytes, Merge merge = {}, std::uint32_t balance = 0);
  void post_nothing();  // in place of it: whose digest is like nobody's
  Progress advance() override;
  void abandon() noexcept override;

  // When done.
  bool alike() const { return alike_; }  // all digests are equal, and the balances add up to 0; then:
  std::span<const std::byte* const> pieces() const { return found_; }  // by rank; merged, one

 private:
  struct Head {
    std::uint64_t digest;
    std::uint32_t nbytes, balance;
  };
  std::byte* mine() { return pieces_.data() + sizeof(Head); }
  std::size_t behind(std::size_t begin, std::size_t count) const;  // where so many pieces end
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
  Staging pieces_;                  // of rank me first, one behind the other
  std::size_t held_ = 0, end_ = 0;  // pieces (merged ones too), bytes
  std::size_t arrived_ = 0;         // bytes, in a round whose sending is not yet done
  Ticket sending_ = kNoTicket, receiving_ = kNoTicket;
  Merge merge_;
  bool alike_ = true;
  std::vector<const std::byte*> found_;
};

}  // namespace ringcomm
