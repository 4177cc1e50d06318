// Implements the transport between threads of a process. A sender puts a message into the
// receiver's inbox. A small message is copied there, and its send is complete. For a large one the
// inbox holds the address, and the receiver copies directly from the sender's buffer (rendezvous).
// Posted receives and unexpected messages are accessed by the receiver's thread only.
#include "transport/threads.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "transport/slots.hpp"
#include "transport/threads_hub.hpp"

namespace ringcomm {
namespace {

using threads::Handover;
using threads::Inbox;
using threads::Message;

constexpr std::size_t kLongestEager = 4096;  // bytes

enum class State : std::uint8_t { active, complete, failed };

struct Slot {
  State state = State::active;
  bool receiving = false, truncated = false;
  int peer = kAnyPeer, tag = 0;
  void* data = nullptr;
  std::size_t nbytes = 0;              // capacity of a receive, then the bytes received
  std::shared_ptr<Message> message{};  // message of a rendezvous send
};

class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<ThreadsHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {
    counts_.sent.resize(static_cast<std::size_t>(hub_->size()));
    counts_.received.resize(counts_.sent.size());
  }
  ~ThreadsTransport() override {
    for (Ticket ticket = 0; ticket < slots_.end(); ++ticket) cancel(ticket);
  }

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  int tag_limit() const override { return 1 << 30; }
  std::size_t in_flight() const override { return posted_.size() + sends_.size(); }
  MessageCounts counts() const override { return counts_; }

  Ticket send(int peer, int tag, const void* data, std::size_t nbytes) override {
    check(peer, tag, nbytes);
    auto message = std::make_shared<Message>();
    message->source = rank_;
    message->tag = tag;
    message->nbytes = nbytes;
    message->data = data;
    const Ticket ticket = slots_.take();
    slots_[ticket].peer = peer;
    if (nbytes <= kLongestEager) {
      message->eager = std::make_unique_for_overwrite<std::byte[]>(nbytes);
      if (nbytes > 0) std::memcpy(message->eager.get(), data, nbytes);
      message->data = message->eager.get();
      slots_[ticket].state = State::complete;
      completed_ = true;
    } else {
      slots_[ticket].message = message;
      sends_.push_back(ticket);
    }
    ++counts_.sent[static_cast<std::size_t>(peer)];
    Inbox& inbox = hub_->inbox(peer);
    const std::lock_guard lock(inbox.mutex);
    inbox.messages.push_back(std::move(message));
    inbox.arrived.fetch_add(1, std::memory_order_release);
    return ticket;
  }

  Ticket receive(int peer, int tag, void* data, std::size_t nbytes) override {
    check(peer, tag, nbytes);
    const Ticket ticket = slots_.take();
    slots_[ticket] = {.receiving = true, .peer = peer, .tag = tag, .data = data, .nbytes = nbytes};
    collect();
    if (!take_unexpected(slots_[ticket])) posted_.push_back(ticket);
    return ticket;
  }

  bool probe(int peer, int tag, Found& found) override {
    check(peer == kAnyPeer ? rank_ : peer, tag, 0);
    collect();
    const auto wanted = [&](const std::shared_ptr<Message>& message) {
      return message->tag == tag && (peer == kAnyPeer || message->source == peer) &&
             message->handover.load(std::memory_order_acquire) == Handover::offered;
    };
    const auto it = std::find_if(unexpected_.begin(), unexpected_.end(), wanted);
    if (it == unexpected_.end()) {
      if (peer == kAnyPeer && hub_->kills() > 0) throw lost(kAnyPeer);
      return false;
    }
    found = {{(*it)->source, (*it)->nbytes}, ++found_so_far_};
    found_[found.message] = std::move(*it);
    unexpected_.erase(it);
    return true;
  }

  Ticket receive(const Found& found, void* data) override {
    const Ticket ticket = slots_.take();
    Slot& slot = slots_[ticket];
    slot = {.receiving = true, .peer = found.arrival.peer, .data = data, .nbytes = found.arrival.nbytes};
    const auto message = found_.extract(found.message);
    if (message.empty()) throw Error(ErrorKind::internal, "a probed message is received twice");
    if (!take(slot, *message.mapped())) slot.state = State::failed;  // the sender has withdrawn it
    completed_ = true;
    return ticket;
  }

  bool poll() override {
    collect();
    reap();
    if (hub_->kills() != kills_seen_) forget_killed();
    return std::exchange(completed_, false);
  }

  bool done(Ticket ticket, Arrival* arrival) override {
    const Slot& slot = slots_.at(ticket);
    if (slot.state == State::active) return false;
    const State state = slot.state;
    const bool truncated = slot.truncated;
    const Arrival what{slot.peer, slot.nbytes, slot.receiving};
    slots_.give(ticket);
    if (truncated) {
      throw Error(ErrorKind::transport,
                  concat("truncated: the message from rank ", what.peer, " (", what.nbytes,
                         " bytes) is longer than its receive"),
                  {what.peer});
    }
    if (state == State::failed) throw lost(what.peer);
    if (arrival) *arrival = what;
    return true;
  }

  void cancel(Ticket ticket) noexcept override {
    if (!slots_.holds(ticket)) return;
    Slot& slot = slots_[ticket];
    if (slot.message) slot.message->withdraw();
    std::erase(slot.receiving ? posted_ : sends_, ticket);
    slots_.give(ticket);
  }

 private:
  static bool matches(const Slot& slot, const Message& message) {
    return slot.tag == message.tag && slot.peer == message.source;
  }

  Error lost(int peer) const {
    const int rank = hub_->killed(rank_) ? rank_ : peer == kAnyPeer ? hub_->first_killed() : peer;
    return Error(ErrorKind::peer_lost, concat("rank ", rank, " is lost"), {rank});
  }

  void check(int peer, int tag, std::size_t nbytes) const {
    check_message(*this, peer, tag, nbytes);
    if (hub_->killed(peer) || hub_->killed(rank_)) throw lost(peer);
  }

  // Copies a message into a receive's buffer; returns false if its sender has withdrawn it.
  bool take(Slot& slot, Message& message) {
    Handover expected = Handover::offered;
    if (!message.handover.compare_exchange_strong(expected, Handover::copying, std::memory_order_acq_rel)) return false;
    slot.truncated = message.nbytes > slot.nbytes;
    if (!slot.truncated && message.nbytes > 0) std::memcpy(slot.data, message.data, message.nbytes);
    ++counts_.received[static_cast<std::size_t>(message.source)];
    slot.nbytes = message.nbytes;
    slot.state = slot.truncated ? State::failed : State::complete;
    message.handover.store(Handover::copied, std::memory_order_release);
    if (!message.eager) hub_->inbox(message.source).completed.fetch_add(1, std::memory_order_release);
    return true;
  }

  bool take_unexpected(Slot& slot) {
    for (auto it = unexpected_.begin(); it != unexpected_.end();) {
      if (!matches(slot, **it)) {
        ++it;
        continue;
      }
      const std::shared_ptr<Message> message = std::move(*it);
      it = unexpected_.erase(it);
      if (take(slot, *message)) return completed_ = true;
    }
    return false;
  }

  // Empties the inbox and matches its messages with the posted receives, in order.
  void collect() {
    Inbox& inbox = hub_->inbox(rank_);
    if (inbox.arrived.load(std::memory_order_acquire) == arrived_seen_) return;
    {
      const std::lock_guard lock(inbox.mutex);
      incoming_.swap(inbox.messages);
      arrived_seen_ = inbox.arrived.load(std::memory_order_relaxed);
    }
    for (std::shared_ptr<Message>& message : incoming_) {
      const auto wants = [&](Ticket ticket) { return matches(slots_[ticket], *message); };
      const auto found = std::find_if(posted_.begin(), posted_.end(), wants);
      if (found == posted_.end()) {
        unexpected_.push_back(std::move(message));
      } else if (take(slots_[*found], *message)) {
        posted_.erase(found);
        completed_ = true;
      }
    }
    incoming_.clear();
  }

  // Completes the rendezvous sends that receivers have copied.
  void reap() {
    const std::uint64_t completed = hub_->inbox(rank_).completed.load(std::memory_order_acquire);
    if (completed == completed_seen_) return;
    completed_seen_ = completed;
    const std::size_t taken = std::erase_if(sends_, [&](Ticket ticket) {
      Slot& slot = slots_[ticket];
      if (slot.message->handover.load(std::memory_order_acquire) != Handover::copied) return false;
      slot.state = State::complete;
      slot.message.reset();
      return true;
    });
    completed_ |= taken > 0;
  }

  // After a kill: fails the messages that wait for a lost rank.
  void forget_killed() {
    kills_seen_ = hub_->kills();
    const auto fails_now = [&](Ticket ticket) {
      Slot& slot = slots_[ticket];
      if (!hub_->killed(slot.peer) && !hub_->killed(rank_)) return false;
      if (slot.message) slot.message->withdraw();
      slot.state = State::failed;
      slot.message.reset();
      return true;
    };
    const std::size_t failures = std::erase_if(posted_, fails_now) + std::erase_if(sends_, fails_now);
    completed_ |= failures > 0;
  }

  std::shared_ptr<ThreadsHub> hub_;
  int rank_;
  Slots<Slot> slots_;
  std::vector<Ticket> posted_;  // receives without a message, in posting order
  std::vector<Ticket> sends_;   // rendezvous sends that no receiver has copied
  std::deque<std::shared_ptr<Message>> unexpected_;
  std::vector<std::shared_ptr<Message>> incoming_;
  std::map<std::uint64_t, std::shared_ptr<Message>> found_;  // found by probe(), not yet received
  std::uint64_t found_so_far_ = 0;
  std::uint64_t arrived_seen_ = 0, completed_seen_ = 0;
  int kills_seen_ = 0;
  MessageCounts counts_;
  bool completed_ = false;  // an operation completed since the last poll()
};

void require_member(const ThreadsHub& hub, int rank) {
  if (rank >= 0 && rank < hub.size()) return;
  throw invalid("rank ", rank, " is not one of the ", hub.size(), " ranks");
}

}  // namespace

std::shared_ptr<ThreadsHub> make_threads_hub(int size) {
  if (size < 1) throw invalid("a group of threads needs at least one rank");
  return std::make_shared<ThreadsHub>(size);
}

std::unique_ptr<Transport> make_threads_transport(std::shared_ptr<ThreadsHub> hub, int rank) {
  require_member(*hub, rank);
  return std::make_unique<ThreadsTransport>(std::move(hub), rank);
}

void threads_kill(ThreadsHub& hub, int rank) {
  require_member(hub, rank);
  hub.kill(rank);
}

}  // namespace ringcomm
