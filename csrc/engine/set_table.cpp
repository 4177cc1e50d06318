// Implements SetTable: checks ranks, and allocates ids and slots of the tag space.
#include "engine/set_table.hpp"

#include <algorithm>
#include <utility>

#include "engine/plans/plan_run.hpp"

namespace ringcomm {

int SetTable::add(Context& context, std::vector<int> ranks, std::shared_ptr<Node> node, int slot) {
  const int size = context.transport->size();
  if (ranks.empty()) throw invalid("a process set needs at least one rank");
  for (const int rank : ranks) {
    if (rank < 0 || rank >= size || std::count(ranks.begin(), ranks.end(), rank) > 1)
      throw invalid("rank ", rank, " of a process set must be in 0..", size - 1, " and occur only once");
  }
  const int tags = free_tags(context.tags.sets());
  sets_[next_id_] = std::make_shared<NamedSet>(context, next_id_, tags, std::move(ranks), std::move(node), slot);
  next_tags_ = tags + 1;
  ++version_;
  return next_id_++;
}

// Returns the slot of the tag space that has been unused for longest, so that late messages of a
// broken set meet no receiver. The result is equal on all ranks.
int SetTable::free_tags(int limit) {
  if (static_cast<int>(sets_.size()) >= limit)
    throw invalid("at most ", limit, " process sets can exist: there are no further message tags");
  int tags = next_tags_ % limit;
  const auto taken = [&](const auto& entry) { return entry.second->tags == tags; };
  while (std::any_of(sets_.begin(), sets_.end(), taken)) tags = (tags + 1) % limit;
  return tags;
}

void SetTable::remove(int id) {
  const std::shared_ptr<NamedSet> set = find(id);
  if (!set->in_flight.empty() || set->plans.stepping())
    throw invalid("process set ", id, " still has operations or a training step in flight: finish them first");
  sets_.erase(id);
  ++version_;
}

void SetTable::wake(const std::shared_ptr<NamedSet>& set) {
  if (!std::exchange(set->awake, true)) woken_.push_back(set);
}

void SetTable::take_woken(std::vector<std::shared_ptr<NamedSet>>& awake) {
  awake.insert(awake.end(), woken_.begin(), woken_.end());
  woken_.clear();
}

std::shared_ptr<NamedSet> SetTable::find(int id) const {
  const auto found = sets_.find(id);
  if (found != sets_.end()) return found->second;
  if (id >= 0 && id < next_id_) throw invalid("process set ", id, " has been removed");
  throw invalid("there is no process set ", id);
}

}  // namespace ringcomm
