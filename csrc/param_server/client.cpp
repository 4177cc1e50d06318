// Implements Client: segments, letters, and failures.
#include "param_server/client.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/cuts.hpp"

namespace ringcomm::store {

void Client::ask(std::shared_ptr<Asked> asked) {
  const std::lock_guard lock(mutex_);
  if (over_) return asked->finish(over_);
  posted_.push_back(std::move(asked));
}

bool Client::send(Mail& mail) {
  std::vector<std::shared_ptr<Asked>> posted;
  {
    const std::lock_guard lock(mutex_);
    posted = std::exchange(posted_, {});
  }
  for (auto& asked : posted) {
    Peer& peer = peers_[asked->peer];
    if (peer.gone) {
      asked->finish(peer.gone);
    } else {
      peer.waiting.push_back(std::move(asked));
    }
  }
  bool moved = false;
  waits_ = false;
  for (auto& [rank, peer] : peers_) {
    for (; !peer.waiting.empty() && peer.under_way.size() < kUnderWay; moved = true) send_segment(rank, peer, mail);
    waits_ |= !peer.under_way.empty();
  }
  return moved;
}

void Client::send_segment(int rank, Peer& peer, Mail& mail) {
  const std::shared_ptr<Asked> asked = peer.waiting.front();
  Cut& cut = peer.cut;
  Segment segment{asked, cut.sent, 0, false};
  std::vector<Range> ranges;
  const std::size_t most = kSegment / asked->element;
  while (cut.range < asked->ranges.size() && segment.count < most) {
    const Range& range = asked->ranges[cut.range];
    const std::size_t piece = std::min<std::size_t>(range.count - cut.within, most - segment.count);
    ranges.push_back({range.first + cut.within, piece});
    segment.count += piece;
    cut.within += piece;
    if (cut.within == range.count) ++cut.range, cut.within = 0;
  }
  cut.sent += segment.count;
  segment.ends = cut.range == asked->ranges.size();
  Head head = asked->head;
  head.number = ++peer.number;
  head.begins = !std::exchange(cut.begun, true);
  head.ends = segment.ends;
  if (!segment.ends) head.clock = -1;
  mail.send(rank, letter_of(*asked, head, ranges, segment));
  peer.under_way.push_back(segment);
  if (!segment.ends) return;
  peer.waiting.pop_front();
  cut = {};
}

std::vector<std::byte> Client::letter_of(const Asked& asked, Head head, const std::vector<Range>& ranges,
                                         const Segment& segment) {
  const std::size_t nbytes = segment.count * asked.element, skipped = segment.at * asked.element;
  head.ranges = static_cast<std::uint32_t>(ranges.size());
  head.gradient = asked.gradient != nullptr;
  head.pulled = asked.pulled != nullptr;
  head.result = asked.result != nullptr;
  std::vector<std::byte> letter(sizeof head + ranges.size() * sizeof(Range) + (head.gradient + head.pulled) * nbytes);
  std::byte* to = letter.data();
  const auto write = [&](const void* from, std::size_t many) {
    if (many > 0) std::memcpy(to, from, many);
    to += many;
  };
  write(&head, sizeof head);
  write(ranges.data(), ranges.size() * sizeof(Range));
  if (head.gradient) write(at(asked.gradient, skipped), nbytes);
  if (head.pulled) write(at(asked.pulled, skipped), nbytes);
  return letter;
}

// Completes a segment. A server answers in the order of the requests.
void Client::answered(int rank, const std::vector<std::byte>& answer) {
  Peer& peer = peers_[rank];
  if (peer.under_way.empty()) return;  // the rank was seen to leave before its last letters were read
  const Segment segment = std::move(peer.under_way.front());
  peer.under_way.pop_front();
  Asked& asked = *segment.asked;
  Head head;
  std::memcpy(&head, answer.data(), sizeof head);
  const std::size_t nbytes = answer.size() - sizeof head;
  if (nbytes > 0) std::memcpy(at(asked.result, segment.at * asked.element), answer.data() + sizeof head, nbytes);
  if (segment.at == 0) asked.version = head.version;
  asked.group = head.due.group;
  asked.arrival = head.arrival;
  if (segment.ends) asked.finish();
}

void Client::fail(Peer& peer, std::exception_ptr why) {
  peer.gone = why;
  for (const Segment& segment : std::exchange(peer.under_way, {})) segment.asked->finish(why);
  for (const auto& asked : std::exchange(peer.waiting, {})) asked->finish(why);
}

void Client::left(int rank, const Error& why) { fail(peers_[rank], std::make_exception_ptr(why)); }

void Client::end(const Error& why) {
  const std::lock_guard lock(mutex_);
  over_ = std::make_exception_ptr(why);
  for (const auto& asked : std::exchange(posted_, {})) asked->finish(over_);
  for (auto& [rank, peer] : peers_) fail(peer, over_);
}

}  // namespace ringcomm::store
