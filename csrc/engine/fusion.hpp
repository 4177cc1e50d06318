// Chooses which ready operations run together: those of the same kind, in buckets of limited size.
// The coordinator uses it to make verdicts.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "engine/agreement/rows.hpp"

namespace ringcomm {

class Fusion {
 public:
  struct Draft {  // a draft of a verdict
    Verdict verdict;
    std::vector<Row*> rows{};  // to run
    std::size_t bytes = 0;
  };

  explicit Fusion(std::size_t fusion_bytes) : limit_(fusion_bytes) {}
  void add(Row& row, std::vector<int> placeholder_ranks);  // adds to an open bucket of its kind, or to a new one
  void add(Verdict&& verdict) { drafts_.push_back({std::move(verdict)}); }
  std::vector<Draft>& drafts() { return drafts_; }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  using Key = std::pair<std::array<char, sizeof(Descriptor)>, std::vector<int>>;  // kind, and joined ranks
  Draft* open_draft(const Row& row, const std::vector<int>& placeholder_ranks, std::size_t bytes);

  const std::size_t limit_;
  std::vector<Draft> drafts_;
  std::map<Key, std::size_t> open_;  // drafts that still accept tensors
  std::size_t last_ = kNone;         // index of the draft used last
};

}  // namespace ringcomm
