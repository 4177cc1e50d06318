// When an operation runs without some of its ranks: the coordinator's side of what engine/standing.hpp is of each rank.
//
// A quorum's operation is an ordinary one but for when it is complete: once so many ranks have come. Verdicts do not
// say who had: whoever has not, when it reads one, takes part with what it has standing. A word that it comes, on its
// way just then, is for that round, as the sender finds when it reads the verdict; it is told from word of the next
// round by the number of verdicts read that it says.
//
// Source: Li et al., "Taming unbalanced training workloads in deep learning with partial collective operations"
// (eager-SGD), arXiv:1908.04207.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringcomm {

class Quorum {
 public:
  // `least`: of ranks that must have come; 0: one rank, drawn anew for each round, so that on average half of the
  // others have come by then ("majority").
  Quorum(int least, std::size_t ranks) : least_(least), aside_(ranks, 0) {}

  // A rank that has read so many verdicts says that it comes. False: to the last round, whose verdict has crossed this.
  bool comes(int rank, std::uint64_t read);
  // It waits for something else, or has ended: nobody waits for it until it comes again.
  void step_aside(int rank) { aside_[static_cast<std::size_t>(rank)] = 1; }
  // Whether that is enough, or all that can be: who has joined does not come either.
  bool met(const std::vector<char>& here, const std::vector<char>& joined) const;
  void decided(std::uint64_t verdict);  // its number

 private:
  const int least_;
  std::vector<char> aside_;              // by rank
  std::uint64_t rounds_ = 0, last_ = 0;  // the last round's verdict
};

}  // namespace ringcomm
