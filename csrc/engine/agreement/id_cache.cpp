// Implements IdCache: least recently used ids are forgotten first.
#include "engine/agreement/id_cache.hpp"

namespace ringcomm {

const IdCache::Known& IdCache::at(std::uint32_t id) const {
  const auto found = known_.find(id);
  if (found == known_.end())
    throw Error(ErrorKind::internal, "a rank used a cache id that the coordinator had not assigned");
  return found->second;
}

void IdCache::identify(Row& row, VerdictItem& item, Verdict& verdict, std::uint64_t number) {
  if (row.id != 0) {
    const bool as_sent = row.id == row.sent_as;
    const bool filling = recent_.size() > capacity_ / 2;  // before that, the order of use is not needed
    if (!as_sent || filling) {
      const Known& known = known_.at(row.id);
      if (!as_sent && !same_signature(known.signature, row.first)) {
        forget(row.id, verdict, number);
      } else if (filling) {
        recent_.splice(recent_.begin(), recent_, known.use);
      }
    }
  }
  item.id = row.id;
  item.known = row.id != 0;
  if (item.known) return;
  item.name = *row.name;
  if (capacity_ == 0) return;
  item.id = row.id = next_id_++;
  ++row.ids;
  recent_.push_front(item.id);
  known_.emplace(item.id, Known{&row, row.first, recent_.begin()});
  if (recent_.size() > capacity_) forget(recent_.back(), verdict, number);
}

void IdCache::forget(std::uint32_t id, Verdict& verdict, std::uint64_t number) {
  Known& known = known_.at(id);
  known.row->id = 0;
  recent_.erase(known.use);
  verdict.forget.push_back(id);
  forgotten_.emplace_back(number, id);
}

std::vector<Row*> IdCache::clean_up(std::uint64_t read_by_all) {
  std::vector<Row*> rows;
  for (; !forgotten_.empty() && forgotten_.front().first <= read_by_all; forgotten_.pop_front()) {
    const auto known = known_.find(forgotten_.front().second);
    if (--known->second.row->ids == 0) rows.push_back(known->second.row);
    known_.erase(known);
  }
  return rows;
}

}  // namespace ringcomm
