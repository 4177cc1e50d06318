// What ranks have ready, as the coordinator keeps it: ranges of ids, or a row for each.
#include <cstring>
#include <limits>
#include <utility>

#include "base/clock.hpp"
#include "engine/agree.hpp"

namespace ringcomm {

void Coordinator::ready(int rank, std::uint64_t heard, const Ready& entry) {
  if (ended_) return;
  hears(rank, heard);
  if (entry.id == 0) {
    unfold(entry.name);
    return ready_row(rank, heard, entry, 0);
  }
  const std::int64_t now = now_ns();
  if (nothing_unusual() && is_plain(entry)) return spans_.tell(rank, {entry.id, entry.count}, now, complete_ids_);
  IdRange alike{entry.id, 0};  // so far
  for (std::uint32_t i = 0; i < entry.count; ++i) {
    const std::uint32_t id = entry.id + i;
    const Known& known = known_by(id);
    if (is_plain(entry) && is_plain(known)) {
      ++alike.count;
      continue;
    }
    spans_.tell(rank, alike, now, complete_ids_);
    alike = {id + 1, 0};
    unfold(known.name);
    ready_row(rank, heard, entry, id);
  }
  spans_.tell(rank, alike, now, complete_ids_);
}

// Then no id needs a look.
bool Coordinator::nothing_unusual() const {
  return joined_count_ == 0 && early_.empty() && rows_.empty() && forgotten_.empty();
}

// There is nothing but the id.
bool Coordinator::is_plain(const Ready& entry) { return entry.extra.empty() && entry.group_size <= 1; }

bool Coordinator::is_plain(const Known& known) const {
  return joined_count_ == 0 && early_.empty() && !known.forgotten && (rows_.empty() || !rows_.contains(known.name));
}

Coordinator::Known& Coordinator::known_by(std::uint32_t id) {
  const auto found = known_.find(id);
  if (found == known_.end()) throw Error(ErrorKind::internal, "a rank used a cache id that nobody gave it");
  return found->second;
}

// A row for each.
void Coordinator::unfold(const Spans::Span& span) {
  for (std::uint32_t i = 0; i < span.ids.count; ++i) {
    const std::uint32_t id = span.ids.first + i;
    Known& known = known_by(id);
    Row& row = row_of(known.name, id, &known);
    row.first = known.signature;
    row.here = span.here;
    row.count = span.count;
    row.first_rank = span.first_rank;
    row.since_ns = span.since_ns;
  }
}

void Coordinator::unfold(const std::string& name) {
  if (spans_.empty()) return;
  const auto id = id_of_.find(name);
  if (id == id_of_.end()) return;
  if (const auto span = spans_.take(id->second)) unfold(*span);
}

void Coordinator::unfold_all() {
  for (const Spans::Span& span : spans_.take_since(std::numeric_limits<std::int64_t>::max())) unfold(span);
  const auto everybody = static_cast<int>(ranks_.size());
  for (const IdRange ids : std::exchange(complete_ids_, {})) {
    unfold({ids, std::vector<char>(ranks_.size(), 1), everybody, 0, now_ns()});
    for (std::uint32_t i = 0; i < ids.count; ++i) look_if_complete(*known_by(ids.first + i).row);
  }
}

void Coordinator::ready_row(int rank, std::uint64_t heard, const Ready& entry, std::uint32_t id) {
  const auto r = static_cast<std::size_t>(rank);
  Known* const known = id != 0 ? &known_by(id) : nullptr;
  const std::string& name = known ? known->name : entry.name;
  const Descriptor& signature = known ? known->signature : entry.signature;
  if (owed(rank, heard, name)) return;

  Row& row = row_of(name, id, known);
  if (row.count == 0) {
    row.first = signature;
    row.here.assign(ranks_.size(), 0);
    row.first_rank = rank;
    row.group = entry.group;
    row.group_size = entry.group_size;
    row.since_ns = now_ns();
  }
  if (row.here[r]) throw Error(ErrorKind::internal, "a rank submitted '" + name + "' twice");
  row.here[r] = 1;
  if (std::memcmp(&row.first, &signature, sizeof signature) != 0) {
    row.others.emplace(rank, signature);
    row.differs |= !same_signature(row.first, signature);
  }
  if (row.group != entry.group || row.group_size != entry.group_size) row.odd_rank = rank;
  if (!entry.extra.empty()) {
    row.extras.resize(ranks_.size());
    row.extras[r] = entry.extra;
  }
  ++row.count;
  look_if_complete(row);
}

// By its id where there is one: names need not be looked up.
Coordinator::Row& Coordinator::row_of(const std::string& name, std::uint32_t id, Known* known) {
  if (known && known->row) return *known->row;
  const auto [entry, fresh] = rows_.try_emplace(name);
  Row& row = entry->second;
  row.name = &entry->first;
  if (known && row.id == 0) {
    row.id = id;
    known->row = &row;
  }
  return row;
}

void Coordinator::look_if_complete(Row& row) {
  if (row.complete) return;
  if (row.count < static_cast<int>(ranks_.size())) {
    if (joined_count_ == 0) return;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (expected(row, i)) return;
    }
  }
  row.complete = true;
  complete_.push_back(&row);
}

// A submission that had crossed an early failure on its way: that rank fails it when it hears of it.
bool Coordinator::owed(int rank, std::uint64_t heard, const std::string& name) {
  if (early_.empty()) return false;
  const auto found = early_.find(name);
  if (found == early_.end()) return false;
  for (Early& early : found->second) {
    char& owing = early.owing[static_cast<std::size_t>(rank)];
    if (!owing || heard >= early.number) continue;
    owing = 0;
    return true;
  }
  return false;
}

}  // namespace ringcomm
