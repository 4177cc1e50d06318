#include "engine/state.hpp"

#include <algorithm>
#include <variant>

#include "base/clock.hpp"
#include "base/rank_text.hpp"

namespace ringcomm {

namespace {
constexpr std::int64_t kLookEvery = 50'000'000;  // ns

// Its channels only run what has been agreed.
EngineConfig without_comparison(EngineConfig config) {
  config.channel.check = false;
  return config;
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
}  // namespace

Engine::State::State(std::shared_ptr<Worker> the_worker, std::shared_ptr<Transport> transport, EngineConfig config)
    : worker(std::move(the_worker)), context(std::move(transport), without_comparison(std::move(config))),
      services(*context.transport) {}

bool Engine::State::moving_data() {
  return services.moving() ||
         std::any_of(live_.begin(), live_.end(), [](const auto& entry) { return entry.second->moving(); });
}

Progress Engine::State::turn() {
  try {
    return give_turn();
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(ErrorKind::internal, std::string("the worker met ") + error.what()));
  }
  return Progress::done;
}

Progress Engine::State::give_turn() {
  if (!refresh()) return Progress::done;
  bool moved = context.control.receive([this](int peer, Record record) { handle(peer, std::move(record)); });
  for (const auto& [id, set] : live_) moved |= set->send_ready();
  for (const auto& [id, set] : live_) moved |= set->decide();
  context.control.flush();  // before the work, so that peers can begin theirs
  bool moved_data = false;
  for (const auto& [id, set] : live_) moved_data |= set->execute();
  if (const std::int64_t now = now_ns(); now - looked_ns_ >= kLookEvery) {
    looked_ns_ = now;
    look_for_dead();
    for (const auto& [id, set] : live_) set->check_stall(now);
  }
  context.control.flush();
  const bool served = services.turn();
  moved |= leave_turn(moved_data);
  if (!still_busy()) return served ? Progress::moved : Progress::done;
  return moved || moved_data || served ? Progress::moved : Progress::blocked;
}

bool Engine::State::refresh() {
  {
    const std::lock_guard lock(context.mutex);
    if (fatal || left_.done()) return false;
    if (version_ != seen_version_) {
      seen_version_ = version_;
      live_ = sets;
    }
    if (leaving_ && stage_ == Leaving::no) stage_ = Leaving::asked;
  }
  while (known_sets_ < (live_.empty() ? 0 : live_.rbegin()->first + 1)) {
    if (NamedSet* set = live(static_cast<std::uint32_t>(known_sets_++))) welcome(*set);
  }
  return services.refresh() || still_busy();
}

bool Engine::State::still_busy() {
  {
    const std::lock_guard lock(context.mutex);
    if (left_.done()) return false;
    if (context.open > 0 || leaving_) return true;
  }
  return context.control.sending();  // a message may need this rank's help to get out
}

// ---- messages

NamedSet* Engine::State::live(std::uint32_t id) {
  const auto found = live_.find(static_cast<int>(id));
  return found == live_.end() ? nullptr : found->second.get();
}

bool Engine::State::not_yet(const Record& record) const {
  return std::visit(
      [this](const auto& r) {
        if constexpr (requires { r.set; }) return r.set >= static_cast<std::uint32_t>(known_sets_);
        return false;
      },
      record);
}

void Engine::State::handle(int peer, Record&& record) {
  if (not_yet(record)) {
    early_.emplace_back(peer, std::move(record));
    return;
  }
  const auto in_set = [this](std::uint32_t id, auto&& act) {
    if (NamedSet* set = live(id)) act(*set);
  };
  std::visit(Overloaded{
                 [&](ReadyRecord& r) { in_set(r.set, [&](NamedSet& set) { set.take(peer, std::move(r)); }); },
                 [&](WithdrawRecord& r) { in_set(r.set, [&](NamedSet& set) { set.take(peer, r); }); },
                 [&](GoingRecord& r) {
                   in_set(r.set, [&](NamedSet& set) {
                     set.decide();  // what is ready everywhere was so before the leaver thought of leaving
                     set.take_going(peer);
                   });
                 },
                 [&](JoinRecord& r) { in_set(r.set, [&](NamedSet& set) { set.take_join(peer); }); },
                 [&](ConfirmedRecord& r) { in_set(r.set, [](NamedSet& set) { set.take_confirmed(); }); },
                 [&](VerdictRecord& r) { in_set(r.set, [&](NamedSet& set) { set.hear(std::move(r)); }); },
                 [&](LeaveRecord& r) { handle_leave(peer, std::move(r)); },
                 [&](AbortRecord& r) {
                   told_ = true;
                   throw Error(r.kind, "rank " + std::to_string(peer) + " reported: " + r.what, r.ranks);
                 },
             },
             record);
}

void Engine::State::handle_leave(int peer, LeaveRecord&& record) {
  for (const SetEnd& end : record.sets) {
    if (NamedSet* set = live(end.set)) set->take_end(peer, end);
  }
  if (!record.entirely) return;
  services.left(peer);
  gone_[peer] = std::move(record);
}

void Engine::State::welcome(NamedSet& set) {
  const auto id = static_cast<std::uint32_t>(set.id);
  for (const auto& [rank, record] : gone_) {
    SetEnd end{id, 0, {}, {}};  // left before it knew the set
    for (const SetEnd& one : record.sets) {
      if (one.set == id) end = one;
    }
    set.take_end(rank, end);
  }
  std::vector<std::pair<int, Record>> waiting = std::exchange(early_, {});
  for (auto& [peer, record] : waiting) handle(peer, std::move(record));
}

// ---- the end

// Twice, because the goodbye of a rank that left before it ended may still be on its way.
void Engine::State::look_for_dead() {
  if (rank_of.empty()) return;
  std::vector<int> ended, dead;
  for (const int pid : processes->dead()) {
    const auto rank = rank_of.find(pid);
    if (rank != rank_of.end() && !gone_.contains(rank->second)) ended.push_back(rank->second);
  }
  for (const int rank : ended) {
    if (contains(suspects_, rank)) dead.push_back(rank);
  }
  suspects_ = std::move(ended);
  if (!dead.empty()) throw Error(ErrorKind::peer_lost, rank_text(dead) + " died: the process has ended", dead);
}

// Fatal: everything fails with it, here, and on the peers by a message that may or may not reach them.
void Engine::State::fail(const Error& error) noexcept {
  {
    const std::lock_guard lock(context.mutex);
    if (fatal) return;
    fatal = std::make_exception_ptr(error);
    lost = error.ranks();
    live_ = sets;
  }
  services.end(error);
  for (const auto& [id, set] : live_) set->die(error);
  for (int peer = 0; peer < context.transport->size() && !told_; ++peer) {
    if (peer == context.rank() || contains(error.ranks(), peer)) continue;
    try {
      context.control.send(peer, AbortRecord{error.kind(), error.what(), error.ranks()});
      context.control.flush();
    } catch (const Error&) {  // that one is lost too
    }
  }
  const std::lock_guard lock(context.mutex);
  if (leaving_) left_.finish();
}

}  // namespace ringcomm
