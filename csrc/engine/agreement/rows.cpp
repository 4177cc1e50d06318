// Implements Rows: counts submissions, and finds complete operations and groups.
#include "engine/agreement/rows.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/types.hpp"

namespace ringcomm {

namespace {

std::size_t bytes_of(const Row& row) {
  const std::size_t elements = std::accumulate(
      row.extras.begin(), row.extras.end(), row.first.count,
      [&](std::size_t sum, const auto& extra) { return extra.empty() ? sum : sum + extra[0] * row.first.row; });
  return elements * size_of(static_cast<DType>(row.first.dtype));
}

std::int32_t priority_of(std::span<Row* const> rows) { return std::ranges::max(rows, {}, &Row::priority)->priority; }

}  // namespace

Row& Rows::of(const std::string& name) {
  const auto [entry, fresh] = rows_.try_emplace(name);
  entry->second.name = &entry->first;
  return entry->second;
}

Row* Rows::waiting(const std::string& name) {
  const auto found = rows_.find(name);
  return found == rows_.end() || found->second.count == 0 ? nullptr : &found->second;
}

void Rows::each_waiting(const std::function<void(const Row&)>& act) const {
  for (const auto& [name, row] : rows_) {
    if (row.count > 0 && !row.due) act(row);
  }
}

void Rows::submit(Row& row, int rank, const Ready& entry, std::uint32_t id, const Descriptor& signature,
                  std::int64_t now_ns) {
  const auto r = static_cast<std::size_t>(rank);
  if (row.count == 0) {
    row.here.assign(joined_.size(), 0);
    if (id == 0 || id != row.sent_as) row.first = signature;
    row.sent_as = id;
    row.first_rank = rank;
    row.group = entry.group;
    row.group_size = entry.group_size;
    row.priority = entry.priority;
    row.since_ns = now_ns;
  } else if (id == 0 || id != row.sent_as) {
    row.sent_as = 0;
    if (std::memcmp(&row.first, &signature, sizeof signature) != 0) {
      row.others.emplace_back(rank, signature);
      row.differs |= !same_signature(row.first, signature);
    }
  }
  if (std::exchange(row.here.at(r), char{1}))
    throw Error(ErrorKind::internal, "a rank submitted '" + *row.name + "' twice");
  row.priority = std::max(row.priority, entry.priority);
  if (row.group != entry.group || row.group_size != entry.group_size) row.differing_rank = rank;
  if (!entry.extra.empty()) {
    row.extras.resize(joined_.size());
    row.extras[r] = entry.extra;
  }
  ++row.count;
  look_if_complete(row);
}

bool Rows::enough(const Row& row) const {
  if (joined_count_ == 0) return false;
  for (std::size_t i = 0; i < joined_.size(); ++i) {
    if (expected(row, i)) return false;
  }
  return true;
}

void Rows::look_if_complete(Row& row) {
  if (row.complete || row.count == 0) return;
  if (row.count < static_cast<int>(joined_.size()) && !enough(row)) return;
  row.complete = true;
  prioritised_ |= row.priority != 0;
  complete_.push_back(&row);
}

void Rows::join(int rank) {
  if (std::exchange(joined_.at(static_cast<std::size_t>(rank)), char{1}))
    throw Error(ErrorKind::internal, "a rank joined twice");
  ++joined_count_;
  last_joined_ = rank;
  for (auto& [name, row] : rows_) look_if_complete(row);
}

void Rows::leave_join() {
  std::fill(joined_.begin(), joined_.end(), char{0});
  joined_count_ = 0;
}

std::vector<int> Rows::placeholder_ranks(const Row& row) const {
  std::vector<int> result;
  for (std::size_t i = 0; i < joined_.size() && joined_count_ > 0; ++i) {
    if (joined_[i] && !row.is_here(i)) result.push_back(static_cast<int>(i));
  }
  return result;
}

std::vector<int> Rows::missing(const Row* row) const {
  std::vector<int> result;
  for (std::size_t i = 0; i < joined_.size(); ++i) {
    if (row ? expected(*row, i) : !joined_[i]) result.push_back(static_cast<int>(i));
  }
  return result;
}

void Rows::each_complete(const Act& act) {
  for (Row* const row : std::exchange(complete_, {})) {
    if (row->group_size <= 1 || row->differing_rank >= 0) {
      act({&row, 1});
      continue;
    }
    std::vector<Row*>& members = groups_[row->group];
    members.push_back(row);
    if (members.size() < row->group_size) continue;
    const std::vector<Row*> all = std::move(members);
    groups_.erase(row->group);
    act(all);
  }
}

void Rows::take_due(std::size_t limit, const Act& act) {
  if (!prioritised_) return each_complete(act);
  if (has_complete()) {
    each_complete([&](std::span<Row* const> rows) {
      for (Row* const row : rows) row->due = true;
      due_.emplace_back(rows.begin(), rows.end());
    });
    std::ranges::stable_sort(due_, std::greater{}, priority_of);
  }
  std::size_t bytes = 0;
  auto end = due_.begin();
  for (; end != due_.end() && bytes < limit; ++end) {
    for (const Row* const row : *end) bytes += bytes_of(*row);
  }
  const std::vector<std::vector<Row*>> taken(std::move_iterator(due_.begin()), std::move_iterator(end));
  due_.erase(due_.begin(), end);
  prioritised_ = has_due() || !groups_.empty();
  for (const std::vector<Row*>& rows : taken) {
    for (Row* const row : rows) row->due = false;
    act(rows);
  }
}

// Removes a row from `due_`. The other rows of its group wait for it again.
void Rows::remove_due(Row& row) {
  const auto found = std::ranges::find_if(due_, [&](const auto& rows) { return std::ranges::count(rows, &row) > 0; });
  for (Row* const member : *found) member->due = false;
  std::erase(*found, &row);
  if (!found->empty()) groups_[row.group] = std::move(*found);
  due_.erase(found);
}

void Rows::remove(Row& row) {
  if (row.due) remove_due(row);
  if (row.complete) {
    std::erase(complete_, &row);
    leave_group(row);
  }
  row.count = 0;
  row.differs = row.complete = false;
  row.others.clear();
  row.extras.clear();
  row.differing_rank = -1;
  release(row);
}

void Rows::leave_group(Row& row) {
  if (row.group_size <= 1) return;
  const auto group = groups_.find(row.group);
  if (group == groups_.end()) return;
  std::erase(group->second, &row);
  if (group->second.empty()) groups_.erase(group);
}

void Rows::release(Row& row) {
  if (row.count == 0 && row.ids == 0) rows_.erase(rows_.find(*row.name));
}

void Rows::clear() {
  complete_.clear();
  groups_.clear();
  due_.clear();
  for (auto& [name, row] : rows_) row.count = 0;
}

}  // namespace ringcomm
