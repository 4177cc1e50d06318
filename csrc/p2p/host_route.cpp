// Implements the links of HostRoute: rings, progress, withdrawal and failures. host_send.cpp and
// host_receive.cpp implement the two directions.
#include "p2p/host_route.hpp"

#include <algorithm>
#include <new>

namespace ringcomm {

HostRoute::HostRoute(std::shared_ptr<Node> node, const std::vector<int>& ranks, bool reads_peers, bool attended,
                     Account& account, Matcher& matcher)
    : MessageRoute(account, "memory"), node_(std::move(node)), matcher_(matcher), attended_(attended),
      links_(ranks.size()) {
  local_.resize(static_cast<std::size_t>(*std::max_element(ranks.begin(), ranks.end())) + 1, -1);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    links_[i].local = static_cast<int>(i);
    links_[i].rank = ranks[i];
    if (!reads_peers) links_[i].readable = false;
    local_[static_cast<std::size_t>(ranks[i])] = links_[i].local;
  }
  if (doorbell().outbox.load(std::memory_order_relaxed) != 0) {
    throw Error(ErrorKind::internal, "this rank's shared memory is already in use for messages");
  }
}

void HostRoute::make_ring(Link& link) {
  const auto fresh = [&](std::size_t nbytes) { return node_->at(node_->rank(), node_->allocate(nbytes)); };
  const auto offset_of = [&](const void* data) { return node_->offset_of(data, 1); };
  if (!rings_) {
    std::byte* const memory = fresh(links_.size() * sizeof *rings_);
    rings_ = reinterpret_cast<std::atomic<std::uint64_t>*>(memory);
    for (std::size_t i = 0; i < links_.size(); ++i) ::new (memory + i * sizeof *rings_) std::atomic<std::uint64_t>(0);
    doorbell().outbox.store(offset_of(rings_), std::memory_order_seq_cst);
  }
  auto* const ring = ::new (fresh(sizeof(PairRing))) PairRing;
  rings_[link.local].store(offset_of(ring), std::memory_order_seq_cst);
  link.out = RingWriter(ring);
}

// Returns the offset of the ring from that rank; 0: none yet.
std::uint64_t HostRoute::ring_from(int local) const {
  const std::uint64_t outbox = doorbell_of(*node_, local).outbox.load(std::memory_order_seq_cst);
  if (outbox == 0) return 0;
  const auto* const rings = reinterpret_cast<std::atomic<std::uint64_t>*>(node_->at(local, outbox));
  return rings[node_->rank()].load(std::memory_order_seq_cst);
}

void HostRoute::find_ring(Link& link) {
  const std::uint64_t ring = ring_from(link.local);
  if (ring != 0) link.in = RingReader(reinterpret_cast<PairRing*>(node_->at(link.local, ring)));
}

void HostRoute::publish(Link& link) {
  link.out.publish();
  doorbell_of(*node_, link.local).wake();
}

void HostRoute::send_control(Link& link, const Control& control) {
  if (!link.out) make_ring(link);
  Cell* const cell = link.controls.empty() ? link.out.next() : nullptr;
  if (!cell) return link.controls.push_back(control);
  cell->kind = control.kind;
  cell->id = control.id;
  cell->where = control.where;
  publish(link);
}

bool HostRoute::advance() {
  bool moved = false;
  for (Link& link : links_) {
    if (!link.in) find_ring(link);
    if (link.in) moved |= read(link);
    if (link.busy()) moved |= give(link);
  }
  return moved;
}

bool HostRoute::quiet() const {
  return std::none_of(links_.begin(), links_.end(), [&](const Link& link) {
    return link.in ? link.in.next() != nullptr : ring_from(link.local) != 0;
  });
}

bool HostRoute::busy() const {
  return std::any_of(links_.begin(), links_.end(), [](const Link& link) { return link.busy(); });
}

bool HostRoute::moving() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const Link& link) { return link.busy() || !link.coming.empty(); });
}

void HostRoute::forget(int peer, const Error& why) {
  Link& link = link_of(peer);
  link.error = why;
  for (std::vector<Request*>* list : {&link.announced, &link.streams, &link.places}) {
    for (Request* send : std::exchange(*list, {})) send->fail(why);
  }
  for (Request* send : std::exchange(link.queue, {})) send->fail(why);
  for (std::vector<Message>* list : {&link.coming, &link.pulls}) {
    for (const Message& message : std::exchange(*list, {})) {
      if (message->placing && message->into) message->into->lent = true;
      message->fail(why);
    }
  }
  link.controls.clear();
}

bool HostRoute::withdraw(Request& request) {
  const auto gave_up = [&](Link& link, auto& list) {
    if (std::erase(list, &request) == 0) return false;
    if (request.id != 0 && !link.error) send_control(link, {CellKind::withdrawn, request.id, 0});
    return true;
  };
  for (Link& link : links_) {
    if (gave_up(link, link.queue) || gave_up(link, link.streams) || gave_up(link, link.places)) return true;
    if (std::find(link.announced.begin(), link.announced.end(), &request) != link.announced.end()) {
      send_control(link, {CellKind::withdrawn, request.id, 0});
      if (!link.controls.empty()) return false;  // the peer is not informed yet, and may read the data
      std::erase(link.announced, &request);
      return true;
    }
    for (std::vector<Message>* list : {&link.coming, &link.pulls}) {
      for (const Message& message : *list) {
        if (message->into != &request) continue;
        if (message->placing) return false;
        message->into = nullptr;
        message->dropped = true;
        return true;
      }
    }
  }
  return true;
}

void HostRoute::replace(Request& request, Request& successor) {
  for (Link& link : links_) {
    std::replace(link.queue.begin(), link.queue.end(), &request, &successor);
    for (std::vector<Request*>* list : {&link.announced, &link.streams, &link.places}) {
      std::replace(list->begin(), list->end(), &request, &successor);
    }
    for (std::vector<Message>* list : {&link.coming, &link.pulls}) {
      for (const Message& message : *list) {
        if (message->into == &request) message->into = &successor;
      }
    }
  }
}

// Finishes a withdrawn send that continued until the peer was informed of the withdrawal.
void HostRoute::end_withdrawn(Link& link, std::uint64_t id) {
  for (std::vector<Request*>* list : {&link.announced, &link.streams, &link.places}) {
    std::erase_if(*list, [id](Request* send) {
      if (send->id != id) return false;
      send->finish();
      return true;
    });
  }
}

}  // namespace ringcomm
