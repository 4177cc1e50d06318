// The comparison of what ranks ask for, by messages: a few bytes from everybody to everybody. Small calls' data rides along.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "task/run_schedule.hpp"
#include "task/staging.hpp"

namespace ringcomm {

inline constexpr std::size_t kPieceAlign = 16;  // of pieces: kernels read their elements in place

// One small piece from each rank to every other, of sizes that nobody knows before. Dissemination: in round k a rank sends all
// that it has to rank me - 2^k and gets as much from me + 2^k (Bruck et al., IEEE Trans. Parallel Distrib. Syst. 8(11), 1997).
// ceil(log2 p) messages each way. A piece tells its size, so ranks that make different calls still understand each other.
class Gathering final : public Task {
 public:
  static constexpr std::uint64_t kUnlike = 0;  // a digest that is like none, not even itself

  // `most`: bytes of the longest piece that any rank may give; the same on all ranks.
  Gathering(Transport& transport, std::span<const int> peers, int me, int tag, std::size_t most);
  ~Gathering() override { abandon(); }
  std::byte* mine() { return pieces_.data() + sizeof(Head); }  // to be written before the first advance()
  void give(std::uint64_t digest, std::size_t nbytes);         // of which nbytes lie in mine()
  Progress advance() override;
  void abandon() noexcept override;

  // When done, by rank.
  bool alike() const { return alike_; }  // all digests are equal
  std::span<const std::byte* const> pieces() const { return found_; }

 private:
  struct Head {
    std::uint64_t digest, nbytes;
  };
  std::size_t behind(std::size_t begin, std::size_t count) const;  // where so many pieces end
  void start_round();
  void look();

  Transport& transport_;
  const std::vector<int> peers_;
  const int me_, tag_;
  const std::size_t most_;
  Staging pieces_;              // of ranks me, me + 1, ... modulo p, one behind the other
  std::size_t held_ = 0, end_ = 0;  // pieces, bytes
  std::size_t arrived_ = 0;         // pieces, in a round whose sending is not yet done
  Ticket sending_ = kNoTicket, receiving_ = kNoTicket;
  bool alike_ = true;
  std::vector<const std::byte*> found_;
};

}  // namespace ringcomm
