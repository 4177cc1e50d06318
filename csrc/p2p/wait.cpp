// Implements waiting of PointToPoint's callers, and the withdrawal of interrupted requests.
#include "base/wait.hpp"

#include <algorithm>
#include <utility>

#include "base/caller_wait.hpp"
#include "base/short_sleeps.hpp"
#include "base/trace.hpp"
#include "p2p/host_route.hpp"
#include "p2p/network_route.hpp"
#include "p2p/point_to_point.hpp"

namespace ringcomm {
namespace {

using namespace std::chrono_literals;

constexpr auto kUnwoken = 100us;          // longest sleep if no peer can wake this rank
constexpr auto kAsleep = 10ms;            // longest sleep if a peer will wake this rank; limited to detect dead ranks
constexpr std::int64_t kYield = 300'000;  // ns of waiting for ranks of this host before sleeping
constexpr std::uint64_t kBytesInNs = 4, kLongestMove = 2'000'000;  // bytes moved per ns on a host; and a limit, in ns
constexpr int kLooks = 64;                                         // polls for messages per look for dead ranks

}  // namespace

// Sleeps until a message arrives, or until `over` holds because of another thread of this rank.
template <class Over>
void PointToPoint::nap(Over&& over, std::chrono::nanoseconds longest) {
  bool wakes = host_ && !network_ && !group_.help;
  if (wakes) {
    const std::lock_guard lock(mutex_);
    wakes = !host_->busy();
  }
  if (!wakes) return std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(longest, kUnwoken));
  host_->doorbell().sleep(longest.count(), [&] {
    const std::lock_guard lock(mutex_);
    return host_->quiet() && !over();
  });
}

template <class Over, class What>
bool PointToPoint::wait_for(Over&& over, int peer, std::int64_t deadline_ns, bool (*interrupted)(), What&& what,
                            std::int64_t moving_ns) {
  Backoff backoff(std::chrono::nanoseconds(network_ ? kUnwoken : kAsleep));
  if (network_ && (peer < 0 || !here_[static_cast<std::size_t>(peer)]))
    backoff.yield_immediately(kYieldBetweenHosts);
  else
    backoff.insist(group_.spin_ns > 0 ? group_.spin_ns + moving_ns : 0, kYield);
  std::optional<ShortSleeps> short_sleeps;
  CallerWait caller(interrupted, group_.rank, group_.stall_warn_seconds);
  int looks = 0;
  const auto look = [&] {
    const bool helped = group_.help && group_.help();
    const std::lock_guard lock(mutex_);
    const bool moved = advance() || helped;
    if (over()) return Progress::done;
    if (moved && ++looks % kLooks == 0) look_if_due();  // also while other ranks keep this rank busy
    return moved ? Progress::moved : Progress::blocked;
  };
  const auto sleep = [&](std::chrono::nanoseconds longest) {
    if (!short_sleeps) short_sleeps.emplace();
    nap(over, longest);
    {
      const std::lock_guard lock(mutex_);
      look_if_due();
    }
    caller.look(now_ns(), [&] { return StallReport::Text{what(), ""}; });
  };
  return wait_until(look, backoff, deadline_ns, sleep);
}

bool PointToPoint::wait(const Request& request, std::int64_t deadline_ns, bool (*interrupted)()) {
  if (request.done()) return true;
  const auto what = [&] { return text_of(request); };
  const auto moving_ns = static_cast<std::int64_t>(std::min<std::uint64_t>(request.nbytes / kBytesInNs, kLongestMove));
  const std::int64_t begun = group_.account->timed() || trace().enabled() ? now_ns() : 0;
  const bool over = wait_for([&] { return request.done(); }, request.peer, deadline_ns, interrupted, what, moving_ns);
  if (begun == 0) return over;
  const std::int64_t now = now_ns();
  if (over && request.entry && group_.account->timed()) request.entry->add_wait(now - begun);
  trace().record("message wait", "waiting for messages", "", begun, now, 0, 0, 0);
  return over;
}

void PointToPoint::run(Request& request, bool (*interrupted)()) {
  start(request);
  finish(request, interrupted);
  if (request.error) throw *request.error;
}

void PointToPoint::run(Request& send, Request& receive, bool (*interrupted)()) {
  check(send.peer, send.tag, false);
  start(receive);
  start(send);
  try {
    finish(send, interrupted);
    if (send.error && !receive.done()) withdraw(receive);
    if (!send.error) finish(receive, interrupted);
  } catch (...) {
    if (!receive.done()) withdraw(receive);
    throw;
  }
  if (send.error) throw *send.error;
  if (receive.error) throw *receive.error;
}

// Waits for a request; withdraws it if the wait is interrupted.
void PointToPoint::finish(Request& request, bool (*interrupted)()) {
  try {
    wait(request, kForEver, interrupted);
  } catch (...) {
    withdraw(request);
    throw;
  }
}

// Withdraws a request, so that its memory is no longer used. If the memory is in use, the request
// continues in the background.
void PointToPoint::withdraw(Request& request) noexcept {
  const std::lock_guard lock(mutex_);
  if (request.done() || (request.kind == Request::Kind::receive && matcher_.cancel(request))) return;
  try {
    const bool from_host = !host_ || host_->withdraw(request);
    const bool from_network = !network_ || network_->withdraw(request);
    if (from_host && from_network) return;
    const auto successor = request.hand_over();
    if (host_) host_->replace(request, *successor);
    if (network_) network_->replace(request, *successor);
    background_.push_back(successor);
  } catch (const Error& error) {  // MPI has failed
    fail_all(error);
  }
}

Envelope PointToPoint::probe(int source, int tag, bool (*interrupted)()) {
  std::optional<Envelope> found = iprobe(source, tag);
  const auto over = [&] {  // with the mutex held
    const Envelope* const first = matcher_.probe(source, tag);
    if (first) found = *first;
    return found || broken_ || source_error(source);
  };
  if (!found) wait_for(over, source, kForEver, interrupted, [&] { return text_of_probe(source, tag); }, 0);
  return found ? *found : iprobe(source, tag).value();  // throws the error
}

}  // namespace ringcomm
