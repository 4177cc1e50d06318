// Implements Client: segments, messages, and failures.
#include "param_server/client.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/cuts.hpp"

namespace ringcomm::store {

void Client::post(std::shared_ptr<PostedRequest> request) {
  const std::lock_guard lock(mutex_);
  if (over_) return request->finish(over_);
  posted_.push_back(std::move(request));
}

bool Client::send(Mail& mail) {
  std::vector<std::shared_ptr<PostedRequest>> posted;
  {
    const std::lock_guard lock(mutex_);
    posted = std::exchange(posted_, {});
  }
  for (auto& request : posted) {
    Peer& peer = peers_[request->peer];
    if (peer.departure_error) {
      request->finish(peer.departure_error);
    } else {
      peer.waiting.push_back(std::move(request));
    }
  }
  bool moved = false;
  waits_ = false;
  for (auto& [rank, peer] : peers_) {
    for (; !peer.waiting.empty() && peer.in_flight.size() < peer.window; moved = true) send_segment(rank, peer, mail);
    waits_ |= !peer.in_flight.empty();
  }
  return moved;
}

void Client::send_segment(int rank, Peer& peer, Mail& mail) {
  const std::shared_ptr<PostedRequest> request = peer.waiting.front();
  Cut& cut = peer.cut;
  Segment segment{request, cut.sent, 0, false};
  std::vector<Range> ranges;
  const std::size_t most = kSegment / request->element;
  while (cut.range < request->ranges.size() && segment.count < most) {
    const Range& range = request->ranges[cut.range];
    const std::size_t piece = std::min<std::size_t>(range.count - cut.within, most - segment.count);
    ranges.push_back({range.first + cut.within, piece});
    segment.count += piece;
    cut.within += piece;
    if (cut.within == range.count) ++cut.range, cut.within = 0;
  }
  cut.sent += segment.count;
  segment.ends = cut.range == request->ranges.size();
  Head head = request->head;
  head.number = ++peer.number;
  head.begins = !std::exchange(cut.begun, true);
  if (head.begins) peer.window = kFirstWindow;
  head.ends = segment.ends;
  if (!segment.ends) head.clock = -1;
  mail.send(rank, message_of(*request, head, ranges, segment));
  peer.in_flight.push_back(segment);
  if (!segment.ends) return;
  peer.waiting.pop_front();
  cut = {};
}

std::vector<std::byte> Client::message_of(const PostedRequest& request, Head head, const std::vector<Range>& ranges,
                                          const Segment& segment) {
  const std::size_t nbytes = segment.count * request.element, skipped = segment.at * request.element;
  head.ranges = static_cast<std::uint32_t>(ranges.size());
  head.gradient = request.gradient != nullptr;
  head.pulled = request.pulled != nullptr;
  head.result = request.result != nullptr;
  std::vector<std::byte> message(sizeof head + ranges.size() * sizeof(Range) + (head.gradient + head.pulled) * nbytes);
  std::byte* to = message.data();
  const auto write = [&](const void* from, std::size_t many) {
    if (many > 0) std::memcpy(to, from, many);
    to += many;
  };
  write(&head, sizeof head);
  write(ranges.data(), ranges.size() * sizeof(Range));
  if (head.gradient) write(at(request.gradient, skipped), nbytes);
  if (head.pulled) write(at(request.pulled, skipped), nbytes);
  return message;
}

// Completes a segment. A server answers in the order of the requests.
void Client::answered(int rank, const std::vector<std::byte>& answer) {
  Peer& peer = peers_[rank];
  if (peer.in_flight.empty()) return;  // the rank was seen to leave before its last messages were read
  const Segment segment = std::move(peer.in_flight.front());
  peer.in_flight.pop_front();
  PostedRequest& request = *segment.request;
  Head head;
  std::memcpy(&head, answer.data(), sizeof head);
  const std::size_t nbytes = answer.size() - sizeof head;
  if (nbytes > 0) std::memcpy(at(request.result, segment.at * request.element), answer.data() + sizeof head, nbytes);
  if (segment.at == 0) request.version = head.version;
  peer.window = std::max<std::size_t>(1, head.window);
  request.group = head.due.group;
  request.arrival = head.arrival;
  if (segment.ends) request.finish();
}

void Client::fail(Peer& peer, std::exception_ptr why) {
  peer.departure_error = why;
  for (const Segment& segment : std::exchange(peer.in_flight, {})) segment.request->finish(why);
  for (const auto& request : std::exchange(peer.waiting, {})) request->finish(why);
}

void Client::left(int rank, const Error& why) { fail(peers_[rank], std::make_exception_ptr(why)); }

void Client::end(const Error& why) {
  const std::lock_guard lock(mutex_);
  over_ = std::make_exception_ptr(why);
  for (const auto& request : std::exchange(posted_, {})) request->finish(over_);
  for (auto& [rank, peer] : peers_) fail(peer, over_);
}

}  // namespace ringcomm::store
