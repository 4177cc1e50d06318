// Implements the comparison of signatures and the per-rank form of verdicts.
#include "engine/agreement/agreement.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace ringcomm {

static_assert(std::has_unique_object_representations_v<Descriptor>, "compared byte by byte");

bool same_signature(const Descriptor& a, const Descriptor& b) {
  static_assert(offsetof(Descriptor, shape_text) + sizeof a.shape_text == sizeof a, "it is the last field");
  return std::memcmp(&a, &b, offsetof(Descriptor, shape_text)) == 0;
}

bool has_matrix(const Verdict& verdict) {
  return std::any_of(verdict.items.begin(), verdict.items.end(), [](const VerdictItem& item) { return item.matrix; });
}

int index_of(std::span<const int> ranks, int rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

Verdict seen_by(const Verdict& verdict, int rank, int size) {
  Verdict mine = verdict;
  for (VerdictItem& item : mine.items) {
    if (!item.matrix) continue;
    const std::vector<std::uint64_t> all = std::move(item.sizes);
    item.matrix = false;
    item.sizes.assign(static_cast<std::size_t>(size), 0);
    for (std::size_t from = 0; from < item.sizes.size(); ++from) {
      item.sizes[from] = all[from * item.sizes.size() + static_cast<std::size_t>(rank)];
    }
  }
  return mine;
}

}  // namespace ringcomm
