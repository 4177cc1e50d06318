// Implements the checks of ready operations and writes their error messages.
#include "engine/agreement/complaints.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/rank_text.hpp"

namespace ringcomm {

namespace {

std::string group_mismatch(const Row& row, std::span<const int> ranks) {
  const auto rank = [&](int index) { return "rank " + std::to_string(ranks[static_cast<std::size_t>(index)]); };
  const std::string group = "in a group of " + std::to_string(row.group_size);
  return concat("'", *row.name, "' was submitted ", row.group_size > 1 ? group : "alone", " by ", rank(row.first_rank),
                ", but ", row.group_size > 1 ? "alone or in a different group" : "in a group", " by ",
                rank(row.differing_rank), ": submit the same names as one group, in the same order, on every rank");
}

std::string difference(const Row& row, std::span<const int> ranks) {
  std::vector<Descriptor> all(ranks.size(), row.first);
  for (const auto& [rank, descriptor] : row.others) all[static_cast<std::size_t>(rank)] = descriptor;
  return disagreement(all, ranks);
}

std::optional<Error> root_has_joined(const Row& row, std::span<const int> ranks) {
  if (row.first.root < 0 || row.first.root >= static_cast<int>(ranks.size())) return std::nullopt;  // refused later
  const auto root = static_cast<std::size_t>(row.first.root);
  if (row.is_here(root)) return std::nullopt;
  const std::string which(name_of(static_cast<Collective>(row.first.collective)));
  return Error(ErrorKind::joined,
               concat(which, " '", *row.name, "': its root, rank ", ranks[root],
                      ", has joined and has no data; choose a root that has not joined"),
               {ranks[root]});
}

std::string bad_rows(const Row& row) {
  const std::string what = "allgather '" + *row.name + "': ";
  if (row.extras.empty()) return what + "no rank gave a first dimension";
  for (std::size_t i = 0; i < row.extras.size(); ++i) {
    if (row.is_here(i) && row.extras[i].size() != 1) return what + "a rank gave no first dimension";
  }
  return {};
}

// Checks Ready::extra of one rank of `size`: its number of rows and, if given, its splits.
std::string bad_splits(const std::vector<std::uint64_t>& extra, std::size_t size) {
  if (extra.empty()) return "gave no first dimension";
  const std::string rows = std::to_string(extra[0]) + " rows";
  if (extra.size() == 1) {
    if (extra[0] % size == 0) return {};
    return concat("has ", rows, ", which is not a multiple of the ", size, " ranks: pass splits");
  }
  if (extra.size() != 1 + size) return concat("passed ", extra.size() - 1, " splits for ", size, " ranks");
  std::uint64_t sum = 0;
  for (std::size_t to = 1; to <= size; ++to) {
    if (extra[to] > extra[0]) return "sends more than its " + rows + " to one rank";
    sum += extra[to];
  }
  return sum == extra[0] ? "" : concat("passed splits whose sum is ", sum, ", but has ", rows);
}

std::string bad_splits(const Row& row, std::span<const int> ranks) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (!row.is_here(i)) continue;
    const std::string why = bad_splits(row.extras.empty() ? std::vector<std::uint64_t>{} : row.extras[i], ranks.size());
    if (!why.empty()) return concat("alltoall '", *row.name, "': rank ", ranks[i], " ", why);
  }
  return {};
}

// Replaces the numbers in a name, with which frameworks often count, by '#'.
std::string without_numbers(const std::string& name) {
  std::string result;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || result.empty() || result.back() != '#') result += digit ? '#' : c;
  }
  return result;
}

}  // namespace

std::string deadlock_text(std::span<Row* const> rows, std::span<const int> ranks, const std::vector<int>& joined) {
  constexpr std::size_t kMostNames = 4;  // for each set of ranks
  std::map<std::vector<int>, std::vector<std::string>> names_of;
  for (const Row* const row : rows) {
    std::vector<int> here;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (row->is_here(i)) here.push_back(ranks[i]);
    }
    names_of[here].push_back(*row->name);
  }
  std::string text = "every rank waits, and no operation can complete:";
  std::set<std::vector<std::string>> shapes;
  for (auto& [here, names] : names_of) {
    std::sort(names.begin(), names.end());
    std::vector<std::string> shape;
    for (const std::string& name : names) shape.push_back(without_numbers(name));
    std::sort(shape.begin(), shape.end());
    shapes.insert(std::move(shape));
    text += ' ' + rank_text(here) + (here.size() == 1 ? " has" : " have") + " submitted ";
    for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) text += (i ? ", '" : "'") + names[i] + "'";
    if (names.size() > kMostNames) text += concat(" and ", names.size() - kMostNames, " more");
    text += ';';
  }
  if (!joined.empty()) text += ' ' + rank_text(joined) + (joined.size() == 1 ? " has" : " have") + " joined;";
  if (names_of.size() > 1 && shapes.size() == 1)
    return text + " these names differ only in their numbers: use the same names on every rank";
  return text +
         " every rank must submit the same operations. Look for uneven numbers of batches (a rank without further "
         "batches must call join()) and for operations that only some ranks submit";
}

std::optional<Error> complaint(const Row& row, std::span<const int> ranks) {
  const auto collective = static_cast<Collective>(row.first.collective);
  if (row.differing_rank < 0 && !row.differs && !has_root(collective) && !has_rows_per_rank(collective))
    return std::nullopt;
  std::string why;
  if (row.differing_rank >= 0) {
    why = group_mismatch(row, ranks);
  } else if (row.differs) {
    why = difference(row, ranks);
  }
  if (why.empty()) {
    if (has_root(collective)) return root_has_joined(row, ranks);
    if (collective == Collective::allgather) why = bad_rows(row);
    if (collective == Collective::alltoall) why = bad_splits(row, ranks);
  }
  return why.empty() ? std::nullopt : std::optional(Error(ErrorKind::mismatch, why));
}

}  // namespace ringcomm
