#include "transport/mpi.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "transport/mpi_functions.hpp"
#include "transport/slots.hpp"

namespace ringcomm {
namespace {

using mpi::Functions;
using mpi::handle_from;

enum class State : std::uint8_t { active, complete, failed };

struct Slot {
  State state = State::active;
  bool receiving = false;
  bool orphan = false;  // cancelled, but MPI may still use the buffer: nobody asks for it any more
  int peer = kAnyPeer;
  int error = 0;             // MPI's code, when failed
  std::size_t nbytes = 0;    // received
  std::size_t position = 0;  // in the array of requests, while active
};

template <class Handle>
class MpiTransport final : public Transport {
 public:
  MpiTransport(const MpiLibrary& library, std::uint64_t comm, int rank, int size, int tag_limit)
      : mpi_(library.dl_handle), yields_(mpi::yields_when_idle(library.dl_handle)), library_(library),
        comm_(handle_from<Handle>(comm)), byte_(handle_from<Handle>(library.byte_type)),
        null_(handle_from<Handle>(library.null_request)), rank_(rank), size_(size), tag_limit_(tag_limit) {
    one_status_.resize(library_.status_size);
  }
  ~MpiTransport() override { withdraw_all(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int tag_limit() const override { return tag_limit_; }
  std::size_t in_flight() const override { return requests_.size(); }
  bool yields() const override { return yields_ && *yields_; }

  Ticket send(int peer, int tag, const void* data, std::size_t nbytes) override {
    check(peer, tag, nbytes);
    Handle request = null_;
    const int code = mpi_.isend(data, static_cast<int>(nbytes), byte_, peer, tag, comm_, &request);
    if (code != library_.success) throw failure("sending to", peer, code);
    return activate(request, peer, false);
  }

  Ticket receive(int peer, int tag, void* data, std::size_t nbytes) override {
    if (peer != kAnyPeer) check(peer, tag, nbytes);
    Handle request = null_;
    const int source = peer == kAnyPeer ? library_.any_source : peer;
    const int code = mpi_.irecv(data, static_cast<int>(nbytes), byte_, source, tag, comm_, &request);
    if (code != library_.success) throw failure("receiving from", peer, code);
    return activate(request, peer, true);
  }

  bool probe(int peer, int tag, Found& found) override {
    if (peer != kAnyPeer) check(peer, tag, 0);
    Handle message = null_;
    int flag = 0;
    const int source = peer == kAnyPeer ? library_.any_source : peer;
    const int code = mpi_.improbe(source, tag, comm_, &flag, &message, one_status_.data());
    if (code != library_.success) throw failure("looking for messages of", peer, code);
    if (!flag) return false;
    found = {arrival_of(one_status_.data()), mpi::bits_of(message)};
    return true;
  }

  Ticket receive(const Found& found, void* data) override {
    auto message = handle_from<Handle>(found.message);
    Handle request = null_;
    const int code = mpi_.imrecv(data, static_cast<int>(found.arrival.nbytes), byte_, &message, &request);
    if (code != library_.success) throw failure("receiving from", found.arrival.peer, code);
    return activate(request, found.arrival.peer, true);
  }

  bool poll() override {
    if (requests_.empty()) return false;
    int completed = 0;
    const int count = static_cast<int>(requests_.size());
    const int code = mpi_.testsome(count, requests_.data(), &completed, indices_.data(), statuses_.data());
    if (completed == library_.undefined) completed = 0;
    if (code != library_.success && !note_failures(code, completed)) return true;
    if (completed == 0) return false;
    for (int i = 0; i < completed; ++i) {
      const auto position = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
      complete(active_[position], status(static_cast<std::size_t>(i)));
    }
    compact(completed);
    return true;
  }

  bool done(Ticket ticket, Arrival* arrival) override {
    if (!slots_.holds(ticket)) throw Error(ErrorKind::internal, "no such ticket: " + std::to_string(ticket));
    const Slot slot = slots_[ticket];
    if (slot.state == State::active) return false;
    slots_.give(ticket);
    if (slot.state == State::failed) {
      throw failure(slot.receiving ? "receiving from" : "sending to", slot.peer, slot.error);
    }
    if (arrival) *arrival = {slot.peer, slot.nbytes};
    return true;
  }

  // MPI cancels receives but not sends. A receive that has matched meanwhile runs to its end, which we await a while:
  // its buffer is the caller's again when this returns, unless the peer is dead. Whatever is left becomes an orphan.
  // Beware: a message much longer than its receive is an error on every MPI, but Open MPI 5.0 between ranks of one host
  // has by then written past the receive's end. Callers compare sizes before they send.
  void cancel(Ticket ticket) override {
    if (!slots_.holds(ticket)) return;
    Slot& slot = slots_[ticket];
    if (slot.state != State::active) {
      slots_.give(ticket);
      return;
    }
    slot.orphan = true;
    if (slot.receiving && !finalized()) withdraw(slot.position);
  }

 private:
  static constexpr std::int64_t kPatience = 2'000'000'000;  // ns that all cancels of one transport may wait together

  std::byte* status(std::size_t index) { return statuses_.data() + index * library_.status_size; }
  static int number_at(const std::byte* place) {
    int value = 0;
    std::memcpy(&value, place, sizeof value);
    return value;
  }

  void check(int peer, int tag, std::size_t nbytes) const {
    if (peer < 0 || peer >= size_ || tag < 0 || tag >= tag_limit_ || nbytes > kLongestMessage) {
      throw Error(ErrorKind::internal, "no such message: peer " + std::to_string(peer) + ", tag " +
                                           std::to_string(tag) + ", " + std::to_string(nbytes) + " bytes");
    }
  }

  Error failure(const char* doing, int peer, int code) const {
    std::array<char, 8192> text{};  // longer than any MPI_MAX_ERROR_STRING
    int length = 0;
    if (mpi_.error_string(code, text.data(), &length) != library_.success) length = 0;
    const std::string who = peer == kAnyPeer ? "any rank" : "rank " + std::to_string(peer);
    const std::string why = length > 0 ? std::string(text.data()) : "error code " + std::to_string(code);
    return Error(ErrorKind::transport, std::string("MPI failed while ") + doing + " " + who + ": " + why,
                 peer == kAnyPeer ? std::vector<int>{} : std::vector<int>{peer});
  }

  Ticket activate(Handle request, int peer, bool receiving) {
    const Ticket ticket = slots_.take();
    Slot& slot = slots_[ticket];
    slot.peer = peer;
    slot.receiving = receiving;
    slot.position = requests_.size();
    requests_.push_back(request);
    active_.push_back(ticket);
    if (indices_.size() < requests_.size()) {
      indices_.resize(requests_.size() * 2);
      statuses_.resize(indices_.size() * library_.status_size);
    }
    return ticket;
  }

  void complete(Ticket ticket, const std::byte* outcome) {
    Slot& slot = slots_[ticket];
    if (slot.orphan) {
      slots_.give(ticket);
      return;
    }
    if (slot.state == State::failed) return;
    slot.state = State::complete;
    if (!slot.receiving) return;
    const Arrival arrival = arrival_of(outcome);
    slot.nbytes = arrival.nbytes;
    slot.peer = arrival.peer;
  }

  Arrival arrival_of(const std::byte* outcome) const {
    int count = 0;
    mpi_.get_count(outcome, byte_, &count);
    return {number_at(outcome + library_.status_source_offset), static_cast<std::size_t>(std::max(count, 0))};
  }

  // After an error some statuses say which messages failed (MPI_ERR_IN_STATUS, whose value we do not know). If none
  // does, MPI itself has failed: every active message has then, and false is returned.
  bool note_failures(int code, int completed) {
    bool found = false;
    for (int i = 0; i < completed; ++i) {
      const int error = number_at(status(static_cast<std::size_t>(i)) + library_.status_error_offset);
      if (error == library_.success) continue;
      found = true;
      Slot& slot = slots_[active_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])]];
      slot.state = State::failed;
      slot.error = error;
      const int source = number_at(status(static_cast<std::size_t>(i)) + library_.status_source_offset);
      if (slot.peer == kAnyPeer && source >= 0 && source < size_) slot.peer = source;
    }
    if (found) return true;
    for (const Ticket ticket : active_) {
      if (slots_[ticket].orphan) {
        slots_.give(ticket);
      } else {
        slots_[ticket].state = State::failed;
        slots_[ticket].error = code;
      }
    }
    requests_.clear();
    active_.clear();
    return false;
  }

  // Takes the completed entries out of the arrays; the others move up and keep their order.
  void compact(int completed) {
    std::size_t first = requests_.size();
    for (int i = 0; i < completed; ++i) {
      const auto position = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
      active_[position] = kNoTicket;
      first = std::min(first, position);
    }
    std::size_t kept = first;
    for (std::size_t i = first; i < requests_.size(); ++i) {
      if (active_[i] == kNoTicket) continue;
      requests_[kept] = requests_[i];
      active_[kept] = active_[i];
      slots_[active_[kept]].position = kept;
      ++kept;
    }
    requests_.resize(kept);
    active_.resize(kept);
  }

  void withdraw(std::size_t position) {
    Handle& request = requests_[position];
    mpi_.cancel(&request);
    const std::int64_t begun = now_ns();
    Backoff backoff(std::chrono::microseconds(100));
    for (;;) {
      int finished = 0;
      const int code = mpi_.test(&request, &finished, one_status_.data());
      if (finished || code != library_.success) break;
      if (waited_ + (now_ns() - begun) > kPatience) {
        waited_ = kPatience;
        return;  // an orphan, until a poll finds it complete
      }
      backoff.pause();
    }
    waited_ += now_ns() - begun;
    slots_.give(active_[position]);
    indices_[0] = static_cast<int>(position);
    compact(1);
  }

  // Objects of Python may outlive MPI: then there is nothing left to withdraw.
  bool finalized() const {
    int over = 0;
    mpi_.finalized(&over);
    return over != 0;
  }

  void withdraw_all() noexcept {
    if (finalized()) return;
    for (std::size_t i = requests_.size(); i-- > 0;) {
      if (slots_[active_[i]].receiving) withdraw(i);
    }
    poll();
  }

  Functions<Handle> mpi_;
  const bool* yields_;
  MpiLibrary library_;
  Handle comm_, byte_, null_;
  int rank_, size_, tag_limit_;
  Slots<Slot> slots_;
  std::vector<Handle> requests_;  // active ones, without holes
  std::vector<Ticket> active_;    // their tickets
  std::vector<int> indices_;
  std::vector<std::byte> statuses_, one_status_;
  std::int64_t waited_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const MpiLibrary& library, std::uint64_t comm, int rank, int size,
                                              int tag_limit) {
  const std::size_t room = library.status_size;
  if (room < sizeof(int) || std::max(library.status_source_offset, library.status_error_offset) > room - sizeof(int)) {
    throw Error(ErrorKind::invalid, "an MPI status of " + std::to_string(room) + " bytes cannot be understood");
  }
  switch (library.handle_size) {
    case sizeof(std::int32_t):
      return std::make_unique<MpiTransport<std::int32_t>>(library, comm, rank, size, tag_limit);
    case sizeof(void*):
      return std::make_unique<MpiTransport<void*>>(library, comm, rank, size, tag_limit);
    default:
      throw Error(ErrorKind::invalid, "MPI handles of " + std::to_string(library.handle_size) + " bytes are unknown");
  }
}

}  // namespace ringcomm
