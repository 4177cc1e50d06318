#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/clock.hpp"
#include "base/types.hpp"
#include "engine/agree.hpp"

namespace ringcomm {

static_assert(std::has_unique_object_representations_v<Descriptor>, "compared byte by byte");

bool same_signature(const Descriptor& a, const Descriptor& b) {
  static_assert(offsetof(Descriptor, shape_text) + sizeof a.shape_text == sizeof a, "it is the last field");
  return std::memcmp(&a, &b, offsetof(Descriptor, shape_text)) == 0;
}

void append(std::vector<Ready>& entries, Ready&& entry) {
  const auto alone = [](const Ready& one) { return one.id != 0 && one.extra.empty() && one.group_size <= 1; };
  if (!entries.empty() && alone(entry) && alone(entries.back()) &&
      entries.back().id + entries.back().count == entry.id) {
    entries.back().count += entry.count;
  } else {
    entries.push_back(std::move(entry));
  }
}

bool has_matrix(const Verdict& verdict) {
  return std::any_of(verdict.items.begin(), verdict.items.end(), [](const VerdictItem& item) { return item.matrix; });
}

int place_of(std::span<const int> ranks, int rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

bool is_plan(const Descriptor& signature) {
  return std::string_view(signature.algorithm, sizeof signature.algorithm).starts_with(kPlanAlgorithm);
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

Coordinator::Coordinator(std::vector<int> ranks, std::size_t fusion_bytes, std::size_t cache_capacity)
    : ranks_(std::move(ranks)), fusion_bytes_(fusion_bytes), cache_capacity_(cache_capacity), heard_(ranks_.size(), 0),
      joined_(ranks_.size(), 0), spans_(ranks_.size()) {}

void Coordinator::end() {
  ended_ = true;
  for (auto& [id, known] : known_) known.row = nullptr;
  rows_.clear();
  spans_.clear();
  complete_.clear();
  complete_ids_.clear();
  groups_.clear();
  failures_.clear();
}

void Coordinator::hears(int rank, std::uint64_t heard) {
  std::uint64_t& so_far = heard_.at(static_cast<std::size_t>(rank));
  so_far = std::max(so_far, heard);
}

void Coordinator::join(int rank) {
  if (ended_) return;
  char& joined = joined_.at(static_cast<std::size_t>(rank));
  if (joined) throw Error(ErrorKind::internal, "a rank joined twice");
  unfold_all();
  joined = 1;
  ++joined_count_;
  last_joined_ = rank;
  for (auto& [name, row] : rows_) look_if_complete(row);
}

std::vector<int> Coordinator::absent(const Row& row) const {
  std::vector<int> result;
  for (std::size_t i = 0; i < ranks_.size() && joined_count_ > 0; ++i) {
    if (!row.here[i] && joined_[i]) result.push_back(static_cast<int>(i));
  }
  return result;
}

void Coordinator::drop(Row& row) {
  if (const auto known = known_.find(row.id); row.id != 0 && known != known_.end()) known->second.row = nullptr;
  rows_.erase(rows_.find(*row.name));
}

void Coordinator::withdraw(int rank, const std::string& name, const std::string& why) {
  unfold_all();
  const auto found = rows_.find(name);
  if (ended_ || found == rows_.end() || !found->second.here[static_cast<std::size_t>(rank)]) return;
  Row& row = found->second;
  Verdict verdict;
  verdict.kind = Verdict::Kind::fail;
  verdict.error = ErrorKind::left;
  verdict.why = why;
  verdict.ranks = missing(name);
  verdict.early = !verdict.ranks.empty();
  verdict.absent = absent(row);
  verdict.items.push_back({.name = name});
  if (verdict.early) {
    // decide() puts failures first, so the verdict's number is known.
    Early early{issued_ + failures_.size() + 1, {}};
    for (std::size_t i = 0; i < ranks_.size(); ++i) early.owing.push_back(expected(row, i));
    early_[name].push_back(std::move(early));
  }
  failures_.push_back(std::move(verdict));
  std::erase(complete_, &row);
  leave_group(row);
  drop(row);
}

void Coordinator::leave_group(Row& row) {
  const auto group = groups_.find(row.group);
  if (row.group_size <= 1 || group == groups_.end()) return;
  std::erase(group->second, &row);
  if (group->second.empty()) groups_.erase(group);
}

std::vector<int> Coordinator::missing(const std::string& name) {
  unfold_all();
  std::vector<int> result;
  const auto found = rows_.find(name);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (found == rows_.end() ? !joined_[i] : expected(found->second, i)) result.push_back(ranks_[i]);
  }
  return result;
}

std::vector<Coordinator::Waiting> Coordinator::waiting(std::int64_t before_ns) {
  for (const Spans::Span& span : spans_.take_since(before_ns)) unfold(span);
  std::vector<Waiting> result;
  for (const auto& [name, row] : rows_) {
    if (row.since_ns > before_ns) continue;
    Waiting& one = result.emplace_back(Waiting{name, row.since_ns, {}, {}});
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (row.here[i]) one.here.push_back(ranks_[i]);
      if (expected(row, i)) one.missing.push_back(ranks_[i]);
    }
  }
  std::sort(result.begin(), result.end(), [](const Waiting& a, const Waiting& b) { return a.since_ns < b.since_ns; });
  return result;
}

}  // namespace ringcomm
