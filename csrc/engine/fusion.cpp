// Implements Fusion: assigns each ready operation to a draft of a verdict.
#include "engine/fusion.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/types.hpp"
#include "codecs/wire_format.hpp"

namespace ringcomm {

namespace {

// Returns whether both tensors may share a bucket.
bool can_share_bucket(const Descriptor& a, const Descriptor& b) {
  return a.dtype == b.dtype && a.op == b.op && a.wire == b.wire && a.on_device == b.on_device && a.pre == b.pre &&
         a.post == b.post && std::memcmp(a.algorithm, b.algorithm, sizeof a.algorithm) == 0;
}

// Returns the fields that all tensors of a bucket share, as bytes.
std::array<char, sizeof(Descriptor)> kind_of(const Descriptor& d) {
  Descriptor kind;
  kind.dtype = d.dtype;
  kind.op = d.op;
  kind.wire = d.wire;
  kind.on_device = d.on_device;
  kind.pre = d.pre;
  kind.post = d.post;
  std::copy(std::begin(d.algorithm), std::end(d.algorithm), kind.algorithm);
  return std::bit_cast<std::array<char, sizeof kind>>(kind);
}

}  // namespace

void Fusion::add(Row& row, std::vector<int> placeholder_ranks) {
  const Descriptor& d = row.first;
  const std::size_t bytes = d.count * size_of(static_cast<DType>(d.dtype));
  // Encoders that do more than round store residuals per tensor, so their tensors are not fused.
  const bool fusable = static_cast<Collective>(d.collective) == Collective::allreduce && !d.plan && bytes < limit_ &&
                       rounds(Wire::of(d.wire));
  Draft* draft = fusable ? open_draft(row, placeholder_ranks, bytes) : nullptr;
  if (!draft) draft = &drafts_.emplace_back(Draft{{.placeholder_ranks = std::move(placeholder_ranks)}});
  draft->bytes += bytes;
  draft->rows.push_back(&row);
}

// Returns the draft for tensors of this kind, if it has room; null: the caller adds a new draft,
// which is then the open one. Consecutive tensors mostly have the same kind.
Fusion::Draft* Fusion::open_draft(const Row& row, const std::vector<int>& placeholder_ranks, std::size_t bytes) {
  const auto takes = [&](std::size_t index) {
    return index < drafts_.size() && drafts_[index].bytes + bytes <= limit_;
  };
  if (takes(last_) && can_share_bucket(drafts_[last_].rows[0]->first, row.first) &&
      drafts_[last_].verdict.placeholder_ranks == placeholder_ranks)
    return &drafts_[last_];
  std::size_t& index = open_.try_emplace({kind_of(row.first), placeholder_ranks}, drafts_.size()).first->second;
  if (!takes(index)) index = drafts_.size();
  last_ = index;
  return index < drafts_.size() ? &drafts_[index] : nullptr;
}

}  // namespace ringcomm
