// Implements Engine::State: submission from any thread, and the turns of the worker.
#include "engine/state.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <variant>

#include "base/clock.hpp"

namespace ringcomm {

namespace {

constexpr int kLooksAfterFailure = 20;  // at intervals of one millisecond
constexpr double kLeaveAtMost = 60;     // limit in seconds, even if data still moves

// The channels run only agreed operations, so they need no consistency check. All channels run in
// the worker's turns, so one account serves all of them.
EngineConfig for_all_channels(EngineConfig config) {
  config.channel.check = false;
  if (!config.channel.account) config.channel.account = std::make_shared<Account>();
  return config;
}

// Returns the set of a record, or nothing if it concerns no set.
std::optional<int> set_of(const Record& record) {
  return std::visit(
      [](const auto& r) -> std::optional<int> {
        if constexpr (requires { r.set; }) return static_cast<int>(r.set);
        return std::nullopt;
      },
      record);
}

}  // namespace

Engine::State::State(std::shared_ptr<Worker> the_worker, std::shared_ptr<Transport> transport, EngineConfig config)
    : worker(std::move(the_worker)), context(std::move(transport), for_all_channels(std::move(config))),
      services(context.control_transport) {}

// ---- any thread

void Engine::State::check_open(const NamedSet& set) const {
  if (leaving_) throw Error(ErrorKind::shut_down, "ringcomm has been shut down: call init() before further operations");
  if (set.me < 0) throw invalid("rank ", context.rank(), " is not in process set ", set.id);
  if (set.in_flight.joining())
    throw invalid("this rank has joined: no operation can be submitted until all ranks have");
}

void Engine::State::submit(int set, std::span<const OperationStatePtr> requests, Worker::When when) {
  const std::int64_t now = now_ns();
  for (const OperationStatePtr& pending : requests) pending->submitted_ns = now;
  std::exception_ptr failed;
  {
    const std::lock_guard lock(context.mutex);
    const std::shared_ptr<NamedSet> target = sets.find(set);
    check_open(*target);
    for (const OperationStatePtr& pending : requests) {
      if (pending->name.empty()) throw invalid("a named operation needs a name");
      if (requests.size() == 1) break;  // insert() sees whether its name is in flight
      target->in_flight.require_free(pending->name);
    }
    failed = fatal;
    if (!failed) {
      for (const OperationStatePtr& pending : requests) target->in_flight.insert(pending);
      sets.wake(target);
    }
  }
  if (!failed) return worker->wake(when);
  for (const OperationStatePtr& pending : requests) pending->conclude(failed);
}

std::shared_ptr<NamedSet> Engine::State::find(int set) {
  const std::lock_guard lock(context.mutex);
  return sets.find(set);
}

void Engine::State::leave() {
  {
    const std::lock_guard lock(context.mutex);
    leaving_ = true;
    if (fatal) left_.finish();
  }
  worker->wake();
  wait_for(left_, *worker, kLeaveAtMost, nullptr);
  left_.finish();
}

void Engine::State::close() {
  {
    const std::lock_guard lock(context.mutex);
    leaving_ = true;
    left_.finish();
    live_ = sets.all();
  }
  const Error closed(ErrorKind::shut_down, "was in flight when ringcomm was shut down");
  services.end(closed);
  services.close();
  for (const auto& [id, set] : live_) set->fail(closed);
  context.control.close();
}

// ---- the worker

bool Engine::State::moving_data() {
  return services.moving() || std::any_of(awake_.begin(), awake_.end(), [](const auto& set) { return set->moving(); });
}

bool Engine::State::far() {
  return std::any_of(awake_.begin(), awake_.end(), [](const auto& set) { return set->far(); });
}

Progress Engine::State::turn() {
  try {
    return give_turn();
  } catch (const Error& error) {
    fail(explained(error));
  } catch (const std::exception& error) {
    fail(Error(ErrorKind::internal, std::string("ringcomm's worker failed: ") + error.what()));
  }
  return Progress::done;
}

Progress Engine::State::give_turn() {
  if (!refresh()) return Progress::done;
  bool moved = context.control.receive([this](int peer, Record record) { receive(peer, std::move(record)); });
  for (const auto& set : awake_) moved |= set->send_ready();
  for (const auto& set : awake_) moved |= set->decide(set->credit());
  context.control.flush();  // before the work, so that peers can begin their work
  bool moved_data = false;
  for (const auto& set : awake_) moved_data |= set->execute();
  look_around();
  context.control.flush();
  const bool served = services.turn();
  if (departure_) moved |= departure_->turn(live_, moved_data);
  if (departure_ && departure_->over()) left_.finish();
  if (!still_busy()) return served ? Progress::moved : services.hot() ? Progress::blocked : Progress::done;
  return moved || moved_data || served ? Progress::moved : Progress::blocked;
}

bool Engine::State::refresh() {
  {
    const std::lock_guard lock(context.mutex);
    if (fatal || left_.done()) return false;
    if (sets.version() != seen_version_) {
      seen_version_ = sets.version();
      live_ = sets.all();
      std::erase_if(awake_, [this](const auto& set) { return !live_.contains(set->id); });
    }
    std::erase_if(awake_, [](const auto& set) { return set->rests() && std::exchange(set->awake, false); });
    if (leaving_ && !departure_) departure_.emplace(context, services);
    if (leaving_) {
      for (const auto& [id, set] : live_) sets.wake(set);
    }
    sets.take_woken(awake_);
  }
  while (!live_.empty() && known_sets_ <= live_.rbegin()->first) welcome(known_sets_++);
  return services.refresh() || still_busy();
}

bool Engine::State::still_busy() {
  {
    const std::lock_guard lock(context.mutex);
    if (left_.done()) return false;
    if (context.open > 0 || leaving_) return true;
  }
  return context.control.sending();  // the transport may need this rank's help to send a message
}

void Engine::State::look_around() {
  if (monitor.due()) {
    const std::vector<int> dead = monitor.dead([this](int rank) { return departed_.contains(rank); });
    if (!dead.empty()) throw died_error(dead);
  }
  const std::int64_t now = now_ns();
  if (!stall_look_.at(now)) return;
  for (const auto& [id, set] : live_) set->check_stall(now);
}

// Looks for dead ranks several times, because MPI may fail a moment before the peer's process has
// ended: it fails as soon as it reads the memory of a process that is ending.
Error Engine::State::explained(const Error& error) const {
  for (int look = 0; error.kind() == ErrorKind::transport && monitor.watches() && look < kLooksAfterFailure; ++look) {
    const std::vector<int> dead = monitor.ended([this](int rank) { return departed_.contains(rank); });
    if (!dead.empty())
      return Error(ErrorKind::peer_lost, concat(died_error(dead).what(), " (", error.what(), ")"), dead);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return error;
}

// ---- messages

void Engine::State::give_turns(const std::shared_ptr<NamedSet>& set) {
  const std::lock_guard lock(context.mutex);
  sets.wake(set);
}

void Engine::State::receive(int peer, Record&& record) {
  if (const std::optional<int> id = set_of(record)) {
    const auto set = live_.find(*id);
    if (*id >= known_sets_) {
      early_.emplace_back(peer, std::move(record));
    } else if (set != live_.end()) {  // otherwise the set has been removed
      give_turns(set->second);
      set->second->receive(peer, std::move(record));
    }
  } else if (const auto* abort = std::get_if<AbortRecord>(&record)) {
    reported_ = true;
    throw Error(abort->kind, concat("rank ", peer, " reported: ", abort->what), abort->ranks);
  } else {
    receive_leave(peer, std::get<LeaveRecord>(std::move(record)));
  }
}

void Engine::State::receive_leave(int peer, LeaveRecord&& record) {
  for (const SetEnd& end : record.sets) {
    const auto set = live_.find(static_cast<int>(end.set));
    if (set == live_.end()) continue;
    give_turns(set->second);
    set->second->receive_end(peer, end);
  }
  if (!record.entirely) return;
  services.left(peer);
  departed_[peer] = std::move(record);
}

void Engine::State::welcome(int id) {
  const auto set = live_.find(id);
  if (set == live_.end()) return;
  give_turns(set->second);
  for (const auto& [rank, record] : departed_) {
    SetEnd end{static_cast<std::uint32_t>(id), 0, {}, {}};  // the rank left before it knew the set
    for (const SetEnd& set_end : record.sets) {
      if (set_end.set == end.set) end = set_end;
    }
    set->second->receive_end(rank, end);
  }
  std::vector<std::pair<int, Record>> waiting = std::exchange(early_, {});
  for (auto& [peer, record] : waiting) receive(peer, std::move(record));
}

// Handles a fatal error: fails all operations here, and on peers by a message, which may not reach
// them.
void Engine::State::fail(const Error& error) noexcept {
  {
    const std::lock_guard lock(context.mutex);
    if (fatal) return;
    fatal = std::make_exception_ptr(error);
    lost = error.ranks();
    live_ = sets.all();
  }
  services.end(error);
  for (const auto& [id, set] : live_) set->fail(error);
  if (!reported_) context.control.send_to_all(AbortRecord{error.kind(), error.what(), error.ranks()}, error.ranks());
  const std::lock_guard lock(context.mutex);
  if (leaving_) left_.finish();
}

}  // namespace ringcomm
