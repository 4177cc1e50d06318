#include "engine/quorum.hpp"

#include "engine/signature.hpp"

namespace ringcomm {

bool Quorum::comes(int rank, std::uint64_t read) {
  aside_[static_cast<std::size_t>(rank)] = 0;
  return read >= last_;
}

bool Quorum::met(const std::vector<char>& here, const std::vector<char>& joined) const {
  std::vector<std::size_t> there;  // who has come, or may
  int come = 0;
  for (std::size_t i = 0; i < here.size(); ++i) {
    if (here[i] || !(joined[i] || aside_[i])) there.push_back(i);
    come += here[i];
  }
  if (static_cast<std::size_t>(come) == there.size()) return true;
  if (least_ > 0) return come >= least_;
  return here[there[(Hash().add(rounds_).value() >> 32) % there.size()]];
}

void Quorum::decided(std::uint64_t verdict) {
  last_ = verdict;
  ++rounds_;
}

}  // namespace ringcomm
