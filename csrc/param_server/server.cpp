// Implements Server: queues requests, runs those that are due, and answers them.
#include "param_server/server.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace ringcomm::store {
namespace {

std::uint64_t total_of(std::span<const Range> ranges) {
  std::uint64_t total = 0;
  for (const Range& range : ranges) total += range.count;
  return total;
}

Head head_of(const std::vector<std::byte>& message) {
  Head head;
  if (message.size() < sizeof head) throw Error(ErrorKind::internal, "a request to a parameter store is truncated");
  std::memcpy(&head, message.data(), sizeof head);
  return head;
}

// Returns the index of `rank` among the workers.
std::size_t place_of(const Served& it, int rank) {
  return static_cast<std::size_t>(std::find(it.ranks.begin(), it.ranks.end(), rank) - it.ranks.begin());
}

std::int64_t clock_of(const Served& it, int rank) {
  const std::size_t place = place_of(it, rank);
  return place < it.ranks.size() ? it.clocks->of(static_cast<int>(place)) : 0;
}

}  // namespace

void Server::serve(std::uint64_t shard, Served served) {
  const std::lock_guard lock(mutex_);
  served_[shard] = std::make_shared<Served>(std::move(served));
}

void Server::forget(std::uint64_t shard) {
  const std::lock_guard lock(mutex_);
  served_.erase(shard);
}

bool Server::serves() const {
  const std::lock_guard lock(mutex_);
  return !served_.empty();
}

std::shared_ptr<Served> Server::find(std::uint64_t shard) const {
  const std::lock_guard lock(mutex_);
  const auto found = served_.find(shard);
  if (found == served_.end())
    throw Error(ErrorKind::internal, "a request to a parameter store names a shard that this rank does not serve");
  return found->second;
}

// Queues a request. A repeated request is ignored, because the first one is or will be answered.
void Server::take(int rank, std::vector<std::byte> request) {
  Peer& peer = peers_[rank];
  const std::uint64_t number = head_of(request).number;
  if (peer.departed || number <= peer.last) return;
  peer.last = number;
  peer.waiting.push_back(std::move(request));
}

bool Server::turn(Mail& mail) {
  bool moved = false, again = true;
  while (again) {  // one rank's request may make another rank's request due
    again = false;
    for (auto& [rank, peer] : peers_) {
      while (!peer.waiting.empty() && answer_first(rank, peer, mail)) again = true;
    }
    moved |= again;
  }
  return moved;
}

// Runs and answers the first request of a rank. Returns false if it is not due yet.
bool Server::answer_first(int rank, Peer& peer, Mail& mail) {
  const std::vector<std::byte>& request = peer.waiting.front();
  const Head head = head_of(request);
  const std::shared_ptr<Served> it = find(head.shard);
  if (!is_due(*it, head.due)) return false;
  if (head.gathers && head.begins) {
    peer.arrival = it->shard->enter(it->gathering, head.step);
    if (peer.arrival == Arrival::full) return false;
    peer.open = peer.arrival == Arrival::gathered ? it : nullptr;
    peer.sum = it->shard->sums() > 1 ? place_of(*it, rank) : 0;
  }
  if (head.begins) peer.turn = {clock_of(*it, rank), ++begun_};
  const std::byte* const rest = request.data() + sizeof head;
  const std::span ranges(reinterpret_cast<const Range*>(rest), head.ranges);
  Head answer;
  answer.answer = true;
  answer.window = window_of(peer);
  std::vector<std::byte> reply(sizeof answer + (head.result ? total_of(ranges) * it->shard->element() : 0));
  if (it->shard) change(peer, it, head, rest, answer, head.result ? reply.data() + sizeof answer : nullptr);
  if (head.clock >= 0) advance(*it, rank, head.clock);
  std::memcpy(reply.data(), &answer, sizeof answer);
  mail.send(rank, std::move(reply));
  peer.waiting.pop_front();
  if (head.ends) peer.turn.reset();
  return true;
}

std::uint32_t Server::window_of(const Peer& peer) const {
  const bool first = std::ranges::none_of(
      peers_, [&](const auto& entry) { return entry.second.turn && *entry.second.turn < *peer.turn; });
  return first ? kWindow : 1;
}

bool Server::is_due(Served& it, const Due& due) {
  if (it.clocks->least() < due.clock) return false;
  if (!it.shard || (due.group == 0 && due.clock < Clocks::kLost)) return true;
  return it.shard->group() >= due.group && !(due.clock >= Clocks::kLost && it.shard->gathers_now());
}

void Server::change(Peer& peer, const std::shared_ptr<Served>& it, const Head& head, const std::byte* rest,
                    Head& answer, std::byte* result) {
  Shard& shard = *it->shard;
  const std::span ranges(reinterpret_cast<const Range*>(rest), head.ranges);
  const std::byte* const gradient = rest + ranges.size_bytes();
  const std::uint64_t nbytes = total_of(ranges) * shard.element();
  answer.version = shard.version();
  if (head.rule != Rule::get || head.gathers) it->rule = head.rule, it->options = head.options;
  if (!head.gathers) {
    answer.version = shard.apply(head.rule, head.options, ranges, head.gradient ? gradient : nullptr,
                                 head.pulled ? gradient + nbytes : nullptr, result);
  } else if (peer.open) {
    std::uint64_t at = 0;
    for (const Range& range : ranges) {
      shard.add(peer.sum, head.options.scale, range, gradient + at * shard.element());
      at += range.count;
    }
    if (head.ends) {
      peer.arrival = shard.leave(it->gathering, head.rule, head.options, *it->clocks);
      peer.open = nullptr;
      it->clocks->wake();
    }
  }
  answer.arrival = peer.arrival;
  answer.due.group = shard.group();
}

// Records that a rank left. A partly received gradient counts as complete.
void Server::left(int rank) {
  Peer& peer = peers_[rank];
  peer.departed = true;
  peer.waiting.clear();
  peer.turn.reset();
  if (const auto it = std::exchange(peer.open, nullptr)) {
    it->shard->leave(it->gathering, it->rule, it->options, *it->clocks);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [shard, it] : served_) advance(*it, rank, Clocks::kFinished);
}

// Sets a worker's clock. When a worker finishes, the gathered gradients may be complete: fewer
// workers are expected.
void Server::advance(Served& it, int rank, std::int64_t clock) {
  const std::size_t place = place_of(it, rank);
  if (place == it.ranks.size()) return;
  it.clocks->set(static_cast<int>(place), clock);
  if (clock < Clocks::kLost || !it.shard) return;
  if (it.shard->apply_if_complete(it.gathering, it.rule, it.options, *it.clocks)) it.clocks->wake();
}

}  // namespace ringcomm::store
