// How the coordinator decides: what is ready everywhere, fused, in verdicts.
#include <algorithm>
#include <bit>
#include <utility>

#include "base/types.hpp"
#include "engine/agree.hpp"

namespace ringcomm {

namespace {

// What tensors of one bucket have in common, as bytes.
std::array<char, sizeof(Descriptor)> kind_of(const Descriptor& d) {
  Descriptor kind;
  kind.dtype = d.dtype;
  kind.op = d.op;
  kind.wire = d.wire;
  kind.pre = d.pre;
  kind.post = d.post;
  std::copy(std::begin(d.algorithm), std::end(d.algorithm), kind.algorithm);
  return std::bit_cast<std::array<char, sizeof kind>>(kind);
}

}  // namespace

std::vector<Verdict> Coordinator::decide() {
  if (ended_) return {};
  Decision decision;
  for (Verdict& verdict : std::exchange(failures_, {})) decision.drafts.push_back({std::move(verdict), {}});
  for (Row* const row : std::exchange(complete_, {})) {
    if (row->group_size <= 1 || row->odd_rank >= 0) {
      judge({&row, 1}, decision);
      continue;
    }
    std::vector<Row*>& members = groups_[row->group];
    members.push_back(row);
    if (members.size() < row->group_size) continue;
    const std::vector<Row*> all = std::move(members);
    groups_.erase(row->group);
    judge(all, decision);
  }
  for (const IdRange ids : std::exchange(complete_ids_, {})) add(ids, decision);
  if (joined_count_ == static_cast<int>(ranks_.size())) {  // so what any rank had submitted was complete, and is above
    Verdict& verdict = decision.drafts.emplace_back().verdict;
    verdict.kind = Verdict::Kind::all_joined;
    verdict.last_joined = ranks_[static_cast<std::size_t>(last_joined_)];
    std::fill(joined_.begin(), joined_.end(), char{0});
    joined_count_ = 0;
  }
  std::vector<Verdict> verdicts;
  for (Draft& draft : decision.drafts) {
    ++issued_;
    identify(draft);  // in the order heard, so that no rank forgets an id before its last use
    verdicts.push_back(std::move(draft.verdict));
  }
  clean_up();
  return verdicts;
}

void Coordinator::judge(std::span<Row* const> rows, Decision& decision) {
  std::optional<Error> why;
  for (std::size_t i = 0; i < rows.size() && !why; ++i) why = complaint(*rows[i]->name, *rows[i]);
  for (Row* const row : rows) {
    if (why) {
      Verdict& verdict = decision.drafts.emplace_back().verdict;
      verdict.kind = Verdict::Kind::fail;
      verdict.error = why->kind();
      verdict.why = why->what();
      verdict.ranks = why->ranks();
      verdict.absent = absent(*row);
      verdict.items.push_back({.name = *row->name});
    } else {
      add(*row, decision);
    }
    drop(*row);
  }
}

void Coordinator::add(Row& row, Decision& decision) {
  const Descriptor& d = row.first;
  const std::vector<int> absent = this->absent(row);
  Draft& draft = draft_for(d, absent, decision);
  const auto known = row.id != 0 && !row.differs ? known_.find(row.id) : known_.end();
  const bool by_id = known != known_.end() && same_signature(known->second.signature, d);
  VerdictItem& item = draft.verdict.items.emplace_back(item_of(row));
  if (!absent.empty()) item.signature = d;
  if (by_id) {
    item.id = row.id;
  } else {
    item.name = *row.name;
    draft.signatures.push_back(d);
  }
}

void Coordinator::add(IdRange ids, Decision& decision) {
  for (std::uint32_t id = ids.first; id - ids.first < ids.count; ++id) {
    const Descriptor& signature = known_by(id).signature;
    if (tells_rows(static_cast<Collective>(signature.collective))) {
      throw Error(ErrorKind::internal, "a rank submitted '" + known_by(id).name + "' without its rows");
    }
    std::vector<VerdictItem>& items = draft_for(signature, {}, decision).verdict.items;
    if (!items.empty() && items.back().alone() && items.back().id + items.back().count == id) {
      ++items.back().count;
    } else {
      items.push_back({.name = {}, .id = id});
    }
  }
}

// An open bucket of its kind, or a verdict of its own.
Coordinator::Draft& Coordinator::draft_for(const Descriptor& d, std::vector<int> absent, Decision& decision) {
  const std::size_t bytes = d.count * size_of(static_cast<DType>(d.dtype));
  const bool fusable =
      static_cast<Collective>(d.collective) == Collective::allreduce && !is_plan(d) && bytes < fusion_bytes_;
  Draft* draft = fusable ? open_draft(d, absent, bytes, decision) : nullptr;
  if (!draft) {
    draft = &decision.drafts.emplace_back();
    draft->verdict.absent = std::move(absent);
  }
  draft->bytes += bytes;
  return *draft;
}

// The draft that takes tensors of this kind, if it has room for one more; else the next one will.
Coordinator::Draft* Coordinator::open_draft(const Descriptor& d, const std::vector<int>& absent, std::size_t bytes,
                                            Decision& decision) {
  const auto kind = kind_of(d);
  if (!decision.last || decision.last->first.first != kind || decision.last->first.second != absent) {
    decision.last = &*decision.open.try_emplace({kind, absent}, decision.drafts.size()).first;
  }
  std::size_t& place = decision.last->second;
  if (place < decision.drafts.size() && decision.drafts[place].bytes + bytes <= fusion_bytes_)
    return &decision.drafts[place];
  place = decision.drafts.size();
  return nullptr;
}

// Without what names it.
VerdictItem Coordinator::item_of(const Row& row) const {
  VerdictItem item{};
  const auto collective = static_cast<Collective>(row.first.collective);
  const std::size_t size = ranks_.size();
  if (collective == Collective::allgather) {
    for (const auto& extra : row.extras) item.sizes.push_back(extra.empty() ? 0 : extra[0]);
  } else if (collective == Collective::alltoall) {
    item.matrix = true;
    item.sizes.reserve(size * size);
    for (const auto& extra : row.extras) {
      for (std::size_t to = 0; to < size; ++to) {
        const bool listed = extra.size() > 1;
        item.sizes.push_back(extra.empty() ? 0 : listed ? extra[1 + to] : extra[0] / size);
      }
    }
    if (std::all_of(item.sizes.begin(), item.sizes.end(), [&](std::uint64_t rows) { return rows == item.sizes[0]; })) {
      item.sizes.resize(1);
      item.matrix = false;
    }
  }
  return item;
}

}  // namespace ringcomm
