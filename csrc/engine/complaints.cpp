// What the coordinator finds wrong with an operation that is ready everywhere.
#include "engine/agree.hpp"

namespace ringcomm {

// Nothing: it runs.
std::optional<Error> Coordinator::complaint(const std::string& name, const Row& row) const {
  const auto mismatch = [](const std::string& why) {
    return why.empty() ? std::nullopt : std::optional(Error(ErrorKind::mismatch, why));
  };
  if (row.odd_rank >= 0) return mismatch(quarrel(name, row));
  if (row.differs) {
    std::vector<Descriptor> all(ranks_.size(), row.first);
    for (const auto& [rank, descriptor] : row.others) all[static_cast<std::size_t>(rank)] = descriptor;
    if (std::string text = disagreement(all, ranks_); !text.empty()) return mismatch(text);
  }
  switch (static_cast<Collective>(row.first.collective)) {
    case Collective::allgather:
      return mismatch(bad_rows(name, row));
    case Collective::alltoall:
      return mismatch(bad_splits(name, row));
    case Collective::broadcast:
    case Collective::reduce:
      return root_is_absent(name, row);
    default:
      return std::nullopt;
  }
}

std::string Coordinator::quarrel(const std::string& name, const Row& row) const {
  const auto rank = [&](int index) { return "rank " + std::to_string(ranks_[static_cast<std::size_t>(index)]); };
  return "'" + name + "' was submitted " +
         (row.group_size > 1 ? "in a group of " + std::to_string(row.group_size) : std::string("alone")) + " by " +
         rank(row.first_rank) + " and otherwise by " + rank(row.odd_rank) +
         ": submit the same names as one group, in the same order, on every rank";
}

std::optional<Error> Coordinator::root_is_absent(const std::string& name, const Row& row) const {
  if (row.first.root < 0 || row.first.root >= static_cast<int>(ranks_.size())) return std::nullopt;  // refused later
  const auto root = static_cast<std::size_t>(row.first.root);
  if (row.here[root]) return std::nullopt;
  const std::string which(name_of(static_cast<Collective>(row.first.collective)));
  return Error(ErrorKind::joined,
               which + " '" + name + "': its root, rank " + std::to_string(ranks_[root]) +
                   ", has joined and has nothing to give; choose a root that still has data",
               {ranks_[root]});
}

std::string Coordinator::bad_rows(const std::string& name, const Row& row) const {
  if (row.extras.empty()) return "allgather '" + name + "': no rank gave a first dimension";
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (row.here[i] && row.extras[i].size() != 1) return "allgather '" + name + "': a rank gave no first dimension";
  }
  return {};
}

std::string Coordinator::bad_splits(const std::string& name, const Row& row) const {
  const std::size_t size = ranks_.size();
  for (std::size_t i = 0; i < size; ++i) {
    if (!row.here[i]) continue;
    const std::string rank = "alltoall '" + name + "': rank " + std::to_string(ranks_[i]);
    if (row.extras.size() != size || row.extras[i].empty()) return rank + " gave no first dimension";
    const auto& extra = row.extras[i];
    const std::string rows = std::to_string(extra[0]) + " rows";
    if (extra.size() == 1) {
      if (extra[0] % size == 0) continue;
      return rank + " has " + rows + ", which is not a multiple of " + std::to_string(size) + " ranks: give splits";
    }
    if (extra.size() != 1 + size) {
      return rank + " gave " + std::to_string(extra.size() - 1) + " splits for " + std::to_string(size) + " ranks";
    }
    std::uint64_t sum = 0;
    for (std::size_t to = 0; to < size; ++to) {
      if (extra[1 + to] > extra[0]) return rank + " sends more rows to one rank than its " + rows;
      sum += extra[1 + to];
    }
    if (sum != extra[0]) return rank + " gave splits whose sum is " + std::to_string(sum) + ", but has " + rows;
  }
  return {};
}

}  // namespace ringcomm
