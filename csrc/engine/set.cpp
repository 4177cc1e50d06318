#include "engine/set.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "engine/plan_run.hpp"

namespace ringcomm {

namespace {

constexpr std::uint64_t kTellEvery = 256;  // verdicts

std::exception_ptr named(const std::string& name, const Error& error) {
  return std::make_exception_ptr(Error(error.kind(), "'" + name + "': " + error.what(), error.ranks()));
}

}  // namespace

NamedSet::NamedSet(Context& context, int id, int place, std::vector<int> ranks_in, std::shared_ptr<Node> node, int slot)
    : id(id), place(place), me(index_of(ranks_in, context.rank())), ranks(std::move(ranks_in)), context_(context),
      buffer_(node) {
  plans.resize(static_cast<std::size_t>(context.tags.plans()));
  if (me < 0) return;
  const EngineConfig& config = context.config;
  channel_ = std::make_unique<Channel>(context.transport, ranks, me, context.tags.of_set(place), std::move(node), slot,
                                       config.channel);
  if (coordinates()) coordinator_.emplace(ranks, config.fusion_bytes, config.cache_capacity);
}

int NamedSet::member(int rank) const {
  const int index = index_of(ranks, rank);
  if (index < 0)
    throw Error(ErrorKind::internal, "rank " + std::to_string(rank) + " spoke of a process set that it is not in");
  return index;
}

void NamedSet::insert(PendingPtr pending) {
  if (!in_flight_.insert(pending).second) {
    throw Error(ErrorKind::invalid,
                "an operation named '" + pending->name + "' is already in flight: wait for it, or choose another name");
  }
  joining_ |= pending->kind == Pending::Kind::join;
  inbox_.push_back(std::move(pending));
  ++context_.open;
}

void NamedSet::list(std::vector<std::string>& names) const {
  for (const PendingPtr& pending : in_flight_) names.push_back(pending->name);
}

PendingPtr NamedSet::find(const std::string& name) const {
  const std::lock_guard lock(context_.mutex);
  const auto found = in_flight_.find(name);
  return found == in_flight_.end() ? nullptr : *found;
}

std::vector<PendingPtr> NamedSet::all() const {
  const std::lock_guard lock(context_.mutex);
  return {in_flight_.begin(), in_flight_.end()};
}

// Before anybody learns that it has finished, who may submit the name again.
bool NamedSet::withdraw_from_flight(const PendingPtr& pending) {
  const auto found = in_flight_.find(pending);
  if (found == in_flight_.end() || *found != pending) return false;
  in_flight_.erase(found);
  if (pending->kind == Pending::Kind::join) joining_ = false;
  --context_.open;
  return true;
}

void NamedSet::finish(const std::vector<Agreed>& parts, const std::exception_ptr& error) {
  std::vector<char> waited;
  waited.reserve(parts.size());
  {
    const std::lock_guard lock(context_.mutex);
    for (const Agreed& part : parts) waited.push_back(withdraw_from_flight(part.pending));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (waited[i]) announce(*parts[i].pending, error);
  }
}

void NamedSet::finish(const PendingPtr& pending, std::exception_ptr error) {
  {
    const std::lock_guard lock(context_.mutex);
    if (!withdraw_from_flight(pending)) return;
  }
  announce(*pending, std::move(error));
}

void NamedSet::announce(Pending& pending, std::exception_ptr error) {
  if (trace().enabled()) {
    const std::int64_t now = now_ns();
    context_.traced("done", pending.name, now, now, 0, error ? "failed" : "");
  }
  pending.conclude(std::move(error));
}

// ---- what became ready here

bool NamedSet::send_ready() {
  std::vector<PendingPtr> fresh;
  {
    const std::lock_guard lock(context_.mutex);
    fresh.swap(inbox_);
  }
  ReadyRecord record{static_cast<std::uint32_t>(id), heard_, {}};
  bool join = false;
  const std::int64_t now = now_ns();
  for (const PendingPtr& pending : fresh) {
    const std::string& name = pending->name;
    if (pending->done()) continue;  // an early failure found it here before it was sent
    if (dead_) {
      finish(pending, named(name, *dead_));
    } else if (pending->kind == Pending::Kind::join) {
      pending->sent_ns = now;
      join = true;
    } else if (abandoned_.contains(name)) {
      held_.push_back(pending);  // the coordinator has not yet failed the one before it
    } else if (const auto doomed = doomed_.find(name); doomed != doomed_.end()) {
      finish(pending, doomed->second.front());
      doomed->second.pop_front();
      if (doomed->second.empty()) doomed_.erase(doomed);
    } else {
      pending->sent_ns = now;
      context_.traced("queue", name, pending->submitted_ns, now);
      append(record.entries, ready_of(pending));
    }
  }
  // A rank that has joined sends nothing else that would tell how far it has heard.
  if (!record.entries.empty() || (joined_ && heard_ - told_ >= kTellEvery)) {
    told_ = heard_;
    if (coordinates()) {
      take(context_.rank(), std::move(record));
    } else {
      context_.control.send(ranks[0], record);
    }
  }
  if (join) send_join();
  return !fresh.empty();
}

void NamedSet::send_join() {
  joined_ = true;
  if (coordinates()) {
    take_join(context_.rank());
  } else {
    context_.control.send(ranks[0], JoinRecord{static_cast<std::uint32_t>(id)});
  }
}

// An id says the same as long as none is forgotten.
std::uint32_t NamedSet::id_of(Pending& pending) const {
  if (pending.sent_as == 0 || pending.sent_in != id || pending.sent_at != known_.forgets()) {
    pending.sent_in = id;
    pending.sent_at = known_.forgets();
    pending.sent_as = known_.find(pending.name, pending.signature);
  }
  return pending.sent_as;
}

Ready NamedSet::ready_of(const PendingPtr& pending) {
  Ready ready;
  ready.id = id_of(*pending);
  if (ready.id == 0) {
    ready.signature = pending->signature;
    ready.name = pending->name;
  } else if (pending->kind == Pending::Kind::request) {
    sent_[ready.id] = pending;
  }
  if (pending->kind == Pending::Kind::request) ready.extra = extra_of(pending->request);
  ready.group = pending->group;
  ready.group_size = pending->group_size;
  return ready;
}

// ---- the coordinator

void NamedSet::take(int rank, ReadyRecord&& record) {
  const int index = member(rank);
  coordinator_.value().has_read(index, record.heard);
  for (const Ready& entry : record.entries) {
    if (trace().enabled()) {
      const std::int64_t now = now_ns();
      for (std::uint32_t i = 0; i < entry.count; ++i) {
        context_.traced("ready", entry.id ? coordinator_->name_under(entry.id + i) : entry.name, now, now, 0,
                        "rank " + std::to_string(rank));
      }
    }
    coordinator_.value().ready(index, record.heard, entry);
  }
}

void NamedSet::take_join(int rank) { coordinator_.value().join(member(rank)); }

void NamedSet::take_going(int rank) {
  coordinator_.value().end();
  if (member(rank) == me) {
    confirmed_ = true;
  } else {
    context_.control.send(rank, ConfirmedRecord{static_cast<std::uint32_t>(id)});
  }
}

bool NamedSet::decide() {
  if (!coordinator_) return false;
  const std::uint64_t first = coordinator_->issued() + 1;
  std::vector<Verdict> verdicts = coordinator_->decide();
  if (verdicts.empty()) return false;
  tell(std::move(verdicts), first);
  return true;
}

void NamedSet::tell(std::vector<Verdict>&& verdicts, std::uint64_t first) {
  const int size = static_cast<int>(ranks.size());
  const auto number = static_cast<std::uint32_t>(id);
  const bool personal = std::any_of(verdicts.begin(), verdicts.end(), has_matrix);
  const auto for_rank = [&](int rank) {
    VerdictRecord record{number, first, {}};
    for (const Verdict& verdict : verdicts) record.verdicts.push_back(seen_by(verdict, rank, size));
    return record;
  };
  Bytes same;
  Record record;
  if (!personal) record = VerdictRecord{number, first, std::move(verdicts)};
  if (!personal && size > 1) encode(record, same);
  for (int rank = 1; rank < size; ++rank) {
    const int peer = ranks[static_cast<std::size_t>(rank)];
    if (personal) {
      context_.control.send(peer, for_rank(rank));
    } else {
      context_.control.send(peer, same);
    }
  }
  if (personal) {
    hear(for_rank(0));
  } else {
    hear(std::move(std::get<VerdictRecord>(record)));
  }
}

}  // namespace ringcomm
