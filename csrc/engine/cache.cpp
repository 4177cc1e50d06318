// The cache of names, on both sides. Why ids are safe: engine/agree.hpp.
#include <algorithm>
#include <utility>

#include "engine/agree.hpp"

namespace ringcomm {

// Gives the items of a verdict about to be sent their ids. An item that comes with one keeps it, unless an item before
// it has made this rank forget it.
void Coordinator::identify(Draft& draft) {
  if (draft.verdict.kind != Verdict::Kind::run) return;
  separate(draft);
  auto signature = draft.signatures.begin();
  for (VerdictItem& item : draft.verdict.items) {
    Known* const given = item.id != 0 ? &known_.at(item.id) : nullptr;
    if (given && !given->forgotten) {
      for (std::uint32_t i = 0; is_filling() && i < item.count; ++i) used(known_.at(item.id + i));
      item.known = true;
      continue;
    }
    const Descriptor described = given ? given->signature : *signature++;
    if (given) item.name = given->name;
    item.id = 0;
    if (cache_capacity_ > 0) remember(item, described, draft.verdict);
  }
}

// Ids stay together in a verdict only where none is forgotten: before it, or by what else is in it.
void Coordinator::separate(Draft& draft) {
  std::vector<VerdictItem>& items = draft.verdict.items;
  const auto safe = [&](const VerdictItem& item) {
    for (std::uint32_t i = 0; i < item.count; ++i) {
      if (known_.at(item.id + i).forgotten) return false;
    }
    return true;
  };
  const auto is_new = [](const VerdictItem& item) { return item.id == 0; };
  if (std::none_of(items.begin(), items.end(), is_new) &&
      (forgotten_.empty() || std::all_of(items.begin(), items.end(), safe)))
    return;
  std::vector<VerdictItem> each;
  for (VerdictItem& item : items) {
    const std::uint32_t count = std::exchange(item.count, 1);
    for (std::uint32_t i = 1; i < count; ++i) each.push_back({.name = {}, .id = item.id + i - 1});
    if (count > 1) item.id += count - 1;
    each.push_back(std::move(item));
  }
  items = std::move(each);
}

// Before that nobody asks what was used last.
bool Coordinator::is_filling() const { return recent_.size() > cache_capacity_ / 2; }

void Coordinator::used(Known& known) { recent_.splice(recent_.begin(), recent_, known.use); }

void Coordinator::remember(VerdictItem& item, const Descriptor& signature, Verdict& verdict) {
  if (const auto found = id_of_.find(item.name); found != id_of_.end()) {
    Known& known = known_.at(found->second);
    if (same_signature(known.signature, signature)) {
      used(known);
      item.id = found->second;
      item.known = true;
      return;
    }
    forget(found->second, verdict);
  }
  item.id = next_id_++;
  recent_.push_front(item.id);
  known_[item.id] = {item.name, signature, recent_.begin()};
  id_of_[item.name] = item.id;
  if (recent_.size() > cache_capacity_) forget(recent_.back(), verdict);
}

void Coordinator::forget(std::uint32_t id, Verdict& verdict) {
  if (const auto span = spans_.take(id)) unfold(*span);
  Known& known = known_.at(id);
  known.forgotten = true;
  recent_.erase(known.use);
  id_of_.erase(known.name);
  verdict.forget.push_back(id);
  forgotten_.emplace_back(issued_, id);
}

// Drops what no message under way can name any more.
void Coordinator::clean_up() {
  if (forgotten_.empty() && early_.empty()) return;
  const std::uint64_t all_heard = *std::min_element(heard_.begin(), heard_.end());
  while (!forgotten_.empty() && forgotten_.front().first <= all_heard) {
    known_.erase(forgotten_.front().second);
    forgotten_.pop_front();
  }
  for (auto entry = early_.begin(); entry != early_.end();) {
    std::erase_if(entry->second, [&](const Early& early) { return early.number <= all_heard; });
    entry = entry->second.empty() ? early_.erase(entry) : std::next(entry);
  }
}

std::uint32_t KnownNames::find(const std::string& name, const Descriptor& signature) const {
  const auto found = by_name_.find(name);
  return found != by_name_.end() && same_signature(found->second.signature, signature) ? found->second.id : 0;
}

const std::string& KnownNames::name_of(std::uint32_t id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) throw Error(ErrorKind::internal, "the coordinator used a cache id that it never gave");
  return found->second;
}

void KnownNames::learn(std::uint32_t id, const std::string& name, const Descriptor& signature) {
  by_name_[name] = {id, signature};
  by_id_[id] = name;
}

void KnownNames::forget(std::uint32_t id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  ++forgets_;
  if (const auto name = by_name_.find(found->second); name != by_name_.end() && name->second.id == id)
    by_name_.erase(name);
  by_id_.erase(found);
}

}  // namespace ringcomm
