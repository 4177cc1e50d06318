// Implements PointToPoint: requests, progress, probes and closing. wait.cpp and departed.cpp
// implement the rest.
#include "p2p/point_to_point.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "base/trace.hpp"
#include "base/wait.hpp"
#include "p2p/host_route.hpp"
#include "p2p/network_route.hpp"
#include "p2p/self_route.hpp"

namespace ringcomm {
namespace {

using namespace std::chrono_literals;

const Error kClosed(ErrorKind::shut_down, "this communicator is closed");
constexpr auto kNap = 100us;
constexpr std::int64_t kGoodbye = 1'000'000'000;  // ns for sending the goodbyes
constexpr std::int64_t kDrain = 5'000'000'000;    // ns that close() waits for messages in flight

}  // namespace

PointToPoint::PointToPoint(Group group)
    : group_(std::move(group)), matcher_(group_.rank),
      self_(std::make_unique<SelfRoute>(group_.rank, *group_.account, matcher_)),
      here_(static_cast<std::size_t>(group_.size)), peer_errors_(static_cast<std::size_t>(group_.size)) {
  if (group_.node && group_.on_host.size() > 1) {
    host_ = std::make_unique<HostRoute>(group_.node, group_.on_host, group_.reads_peers, group_.attended,
                                        *group_.account, matcher_);
    for (const int rank : group_.on_host) here_[static_cast<std::size_t>(rank)] = true;
  }
  if (group_.transport)
    network_ = std::make_unique<NetworkRoute>(std::move(group_.transport), group_.first_tag, group_.piece,
                                              *group_.account, matcher_);
}

PointToPoint::~PointToPoint() {
  const std::lock_guard lock(mutex_);
  fail_all(kClosed);
}

void PointToPoint::watch(std::shared_ptr<const Processes> processes, std::map<int, int> rank_of) {
  const std::lock_guard lock(mutex_);
  monitor_.watch(std::move(processes), std::move(rank_of));
}

MessageRoute& PointToPoint::route_to(int rank) {
  if (rank == group_.rank) return *self_;
  if (here_[static_cast<std::size_t>(rank)]) return *host_;
  return *network_;
}

void PointToPoint::check(int peer, int tag, bool receives) const {
  const std::string where = " of this communicator of " + std::to_string(group_.size);
  if (!(peer >= 0 && peer < group_.size) && peer != kProcNull && !(receives && peer == kAnySource)) {
    throw Error(ErrorKind::invalid, std::string(receives ? "source " : "dest ") + std::to_string(peer) +
                                        " is not a rank" + where + ", nor " + (receives ? "ANY_SOURCE or " : "") +
                                        "PROC_NULL");
  }
  if (tag < 0 && !(receives && tag == kAnyTag)) {
    throw Error(ErrorKind::invalid,
                "tag " + std::to_string(tag) + " is negative" + (receives ? " and not ANY_TAG" : ""));
  }
}

// Begins a request. The mutex is held.
void PointToPoint::begin(Request& request) {
  const bool receives = request.kind == Request::Kind::receive;
  if (broken_) return request.fail(*broken_);
  if (group_.account->timed()) request.begun_ns = now_ns();
  if (trace().enabled()) request.traced_ns = now_ns();
  if (request.peer == kProcNull) {
    request.status = {kProcNull, kAnyTag, 0};
    return request.finish();
  }
  if (!receives) {
    if (const auto& error = peer_errors_[static_cast<std::size_t>(request.peer)]) return request.fail(*error);
    MessageRoute& route = route_to(request.peer);
    route.count_send(request);
    return route.send(request);
  }
  matcher_.receive(request);
  if (request.done()) return;
  if (const auto why = source_error(request.peer); why && matcher_.cancel(request)) request.fail(*why);
}

void PointToPoint::start(Request& request) {
  check(request.peer, request.tag, request.kind == Request::Kind::receive);
  const std::lock_guard lock(mutex_);
  begin(request);
}

void PointToPoint::start(const std::shared_ptr<Request>& request) {
  check(request->peer, request->tag, request->kind == Request::Kind::receive);
  const std::lock_guard lock(mutex_);
  begin(*request);
  if (request->done() && !request->error) return;
  background_.push_back(request);
  if (request->done()) return sweep();
  // wakes a waiting thread of this rank, which then moves this request too
  if (host_ && host_->busy()) host_->doorbell().wake();
}

bool PointToPoint::advance() {
  if (broken_) return false;
  bool moved = false;
  try {
    if (host_) moved |= host_->advance();
    if (network_) {
      moved |= network_->advance();
      for (const int rank : network_->departed()) fail_peer(rank, left_error({rank}));
    }
  } catch (const Error& error) {
    fail_all(error);
    moved = true;
  } catch (const std::bad_alloc&) {
    fail_all(Error(ErrorKind::transport, "this rank ran out of memory while it transferred messages"));
    moved = true;
  }
  if (moved) {
    sweep();
    if (host_) host_->doorbell().wake();  // wakes other threads of this rank
  }
  return moved;
}

void PointToPoint::sweep() {
  std::erase_if(failed_, [](const auto& request) { return request->reported.load(); });
  std::erase_if(background_, [this](const auto& request) {
    if (request->done() && request->error) failed_.push_back(request);
    return request->done();
  });
}

bool PointToPoint::progress() {
  const std::lock_guard lock(mutex_);
  const bool moved = advance();
  return look_if_due() || moved;
}

bool PointToPoint::pending() const {
  const std::lock_guard lock(mutex_);
  return !background_.empty();
}

bool PointToPoint::cancel(Request& receive) {
  const std::lock_guard lock(mutex_);
  if (receive.kind != Request::Kind::receive || receive.done() || !matcher_.cancel(receive)) return false;
  receive.cancelled = true;
  receive.finish();
  sweep();
  return true;
}

std::optional<Envelope> PointToPoint::iprobe(int source, int tag) {
  check(source, tag, true);
  if (source == kProcNull) return Envelope{kProcNull, kAnyTag, 0};
  const std::lock_guard lock(mutex_);
  if (!matcher_.probe(source, tag)) {
    advance();
    look_if_due();
  }
  if (const Envelope* const found = matcher_.probe(source, tag)) return *found;
  if (broken_) throw *broken_;
  if (const auto why = source_error(source)) {
    throw Error(why->kind(), text_of_probe(source, tag) + ": " + why->what(), why->ranks());
  }
  return std::nullopt;
}

bool PointToPoint::moving() const {
  const std::lock_guard lock(mutex_);
  return (host_ && host_->moving()) || (network_ && network_->moving());
}

std::vector<std::uint64_t> PointToPoint::sent() const {
  const std::lock_guard lock(mutex_);
  return network_ ? network_->sent() : std::vector<std::uint64_t>{};
}

std::vector<std::string> PointToPoint::close(const std::vector<std::uint64_t>& sent_here) {
  const std::lock_guard lock(mutex_);
  Backoff backoff(kNap);
  const auto drained = [&] {
    const bool moved = advance();
    if (broken_ || !network_ || network_->drained(sent_here)) return Progress::done;
    return moved ? Progress::moved : Progress::blocked;
  };
  wait_until(drained, backoff, now_ns() + kDrain);
  std::vector<std::string> lines = left_over();
  fail_all(kClosed);
  if (network_) network_->close();
  return lines;
}

std::vector<std::string> PointToPoint::left_over() {
  std::vector<std::string> lines;
  for (const auto& unexpected : matcher_.matching().unexpected()) {
    lines.push_back(text_of_message(unexpected.envelope) + " was never received");
  }
  for (const auto& request : background_) {
    if (!request->done()) lines.push_back(text_of(*request) + " has not completed");
  }
  for (const auto& request : failed_) {
    if (!request->reported) lines.emplace_back(request->error->what());
  }
  return lines;
}

std::vector<std::string> PointToPoint::leave() {
  const std::lock_guard lock(mutex_);
  advance();  // reads messages that have arrived
  if (host_) host_->doorbell().state.store(1, std::memory_order_seq_cst);
  if (network_ && !broken_) {
    try {
      network_->send_goodbyes(remote_ranks());
      Backoff backoff(kNap);
      const auto out = [&] {
        const bool moved = network_->advance();
        return !network_->moving() ? Progress::done : moved ? Progress::moved : Progress::blocked;
      };
      wait_until(out, backoff, now_ns() + kGoodbye);
    } catch (const std::exception&) {  // no peer is reachable
    }
  }
  std::vector<std::string> lines;
  if (!broken_) lines = left_over();
  fail_all(kClosed);
  return lines;
}

std::vector<int> PointToPoint::remote_ranks() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < group_.size; ++rank) {
    if (rank != group_.rank && !here_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace ringcomm
