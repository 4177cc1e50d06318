// Detects ranks that left, failed or died, and fails the messages that depend on them.
#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "p2p/host_route.hpp"
#include "p2p/point_to_point.hpp"

namespace ringcomm {

// Looks for ranks that left, failed or died. Reads the last messages of these ranks before it fails
// requests. No messages of these ranks follow.
bool PointToPoint::look() {
  if (broken_) return false;
  std::vector<std::pair<int, Error>> lost;
  const std::vector<int> ended = host_ ? group_.node->dead() : std::vector<int>{};
  for (std::size_t i = 0; host_ && i < group_.on_host.size(); ++i) {
    const int rank = group_.on_host[i], local = static_cast<int>(i);
    if (rank == group_.rank || peer_errors_[static_cast<std::size_t>(rank)]) continue;
    const std::uint32_t state = doorbell_of(*group_.node, local).state.load(std::memory_order_seq_cst);
    if (state == 1) {
      lost.emplace_back(rank, left_error({rank}));
    } else if (state != 0) {
      lost.emplace_back(rank, failed_error({rank}));
    } else if (std::find(ended.begin(), ended.end(), local) != ended.end()) {
      lost.emplace_back(rank, died_error({rank}));
    }
  }
  const auto known = [&](int rank) {
    return peer_errors_[static_cast<std::size_t>(rank)] ||
           std::any_of(lost.begin(), lost.end(), [rank](const auto& entry) { return entry.first == rank; });
  };
  for (const int rank : monitor_.dead(known)) lost.emplace_back(rank, died_error({rank}));
  if (lost.empty()) return false;
  advance();  // reads up to a full ring of messages
  for (const auto& [rank, why] : lost) fail_peer(rank, why);
  return true;
}

bool PointToPoint::look_if_due() { return monitor_.due() && look(); }

void PointToPoint::fail_peer(int rank, const Error& why) {
  peer_errors_[static_cast<std::size_t>(rank)] = why;
  route_to(rank).forget(rank, why);
  const auto cannot_match = [&](int source, int) { return source_error(source).has_value(); };
  while (const auto receive = matcher_.matching().take_posted(cannot_match))
    (*receive)->fail(*source_error((*receive)->peer));
  sweep();
  if (host_) host_->doorbell().wake();
}

// Returns the error if no message can arrive from `source`. With kAnySource, a rank that left is
// ignored while other ranks remain; a rank that died may have been the expected sender.
std::optional<Error> PointToPoint::source_error(int source) const {
  if (source != kAnySource) return peer_errors_[static_cast<std::size_t>(source)];
  std::optional<Error> why;
  int others = 0;
  for (int rank = 0; rank < group_.size; ++rank) {
    const auto& peer_error = peer_errors_[static_cast<std::size_t>(rank)];
    if (peer_error && peer_error->fatal()) return peer_error;
    if (peer_error) why = peer_error;
    others += rank != group_.rank && !peer_error;
  }
  return others == 0 ? why : std::nullopt;
}

void PointToPoint::fail_all(const Error& error) noexcept {
  if (broken_) return;
  broken_ = error;
  for (int rank = 0; rank < group_.size; ++rank) {
    if (rank != group_.rank) route_to(rank).forget(rank, error);
  }
  while (const auto receive = matcher_.matching().take_posted([](int, int) { return true; })) (*receive)->fail(error);
  background_.clear();
  if (host_) host_->doorbell().wake();
}

}  // namespace ringcomm
