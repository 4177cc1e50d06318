// Implements the transport over MPI. Messages are nonblocking operations; poll() is MPI_Testsome.
#include "transport/mpi.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/wait.hpp"
#include "transport/mpi_functions.hpp"
#include "transport/mpi_requests.hpp"
#include "transport/slots.hpp"

namespace ringcomm {
namespace {

using mpi::Functions;
using mpi::handle_from;

std::atomic<std::size_t> orphans{0};

enum class State : std::uint8_t { active, complete, failed };

struct Slot {
  State state = State::active;
  bool receiving = false;
  bool orphan = false;  // cancelled, but MPI may still use the buffer; the ticket is invalid
  int peer = kAnyPeer;
  int error = 0;           // MPI's error code, if failed
  std::size_t nbytes = 0;  // received
};

template <class Handle>
class MpiTransport final : public Transport {
 public:
  MpiTransport(const MpiLibrary& library, std::uint64_t comm, int rank, int size, int tag_limit)
      : mpi_(library.dl_handle), yields_(mpi::yields_when_idle(library.dl_handle)), library_(library),
        comm_(handle_from<Handle>(comm)), byte_(handle_from<Handle>(library.byte_type)),
        null_(handle_from<Handle>(library.null_request)), rank_(rank), size_(size), tag_limit_(tag_limit),
        requests_(library.status_size), one_status_(library.status_size),
        counts_{std::vector<std::uint64_t>(static_cast<std::size_t>(size)),
                std::vector<std::uint64_t>(static_cast<std::size_t>(size))} {}
  ~MpiTransport() override { withdraw_all(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int tag_limit() const override { return tag_limit_; }
  std::size_t in_flight() const override { return requests_.size(); }
  bool yields() const override { return yields_ && *yields_; }
  bool takes_device_memory() const override { return mpi::takes_device_memory(library_.dl_handle); }
  MessageCounts counts() const override { return counts_; }

  Ticket send(int peer, int tag, const void* data, std::size_t nbytes) override {
    check_message(*this, peer, tag, nbytes);
    Handle request = null_;
    const int code = mpi_.isend(data, static_cast<int>(nbytes), byte_, peer, tag, comm_, &request);
    if (code != library_.success) throw failure("sending to", peer, code);
    ++counts_.sent[static_cast<std::size_t>(peer)];
    return activate(request, peer, false);
  }

  Ticket receive(int peer, int tag, void* data, std::size_t nbytes) override {
    check_message(*this, peer, tag, nbytes);
    Handle request = null_;
    const int code = mpi_.irecv(data, static_cast<int>(nbytes), byte_, peer, tag, comm_, &request);
    if (code != library_.success) throw failure("receiving from", peer, code);
    return activate(request, peer, true);
  }

  bool probe(int peer, int tag, Found& found) override {
    if (peer != kAnyPeer) check_message(*this, peer, tag, 0);
    Handle message = null_;
    int flag = 0;
    const int source = peer == kAnyPeer ? library_.any_source : peer;
    const int code = mpi_.improbe(source, tag, comm_, &flag, &message, one_status_.data());
    if (code != library_.success) throw failure("probing for messages from", peer, code);
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
    if (requests_.size() == 0) return false;
    int ended = 0;
    const int code = requests_.test(mpi_, ended);
    if (ended == library_.undefined) ended = 0;
    if (code != library_.success && !note_failures(code, ended)) return true;
    if (ended == 0) return false;
    for (int i = 0; i < ended; ++i) complete(requests_.ended(i), requests_.status(i));
    requests_.drop_ended(ended);
    return true;
  }

  bool done(Ticket ticket, Arrival* arrival) override {
    const Slot slot = slots_.at(ticket);
    if (slot.state == State::active) return false;
    slots_.give(ticket);
    if (slot.state == State::failed) {
      throw failure(slot.receiving ? "receiving from" : "sending to", slot.peer, slot.error);
    }
    if (arrival) *arrival = {slot.peer, slot.nbytes, slot.receiving};
    return true;
  }

  // MPI can cancel receives, but neither sends nor receives that are already matched. This function
  // waits a limited time until a receive is cancelled or complete. So on return the caller owns a
  // receive's buffer again, unless the peer died. Sends, and receives that do not end in time,
  // become orphans.
  // Beware: a message longer than its receive is an error in every MPI. If it is much longer, Open
  // MPI 5.0 between ranks of one host writes past the end of the receive buffer before it reports
  // the error. Callers compare sizes before they send.
  void cancel(Ticket ticket) noexcept override {
    if (!slots_.holds(ticket)) return;
    Slot& slot = slots_[ticket];
    if (slot.state != State::active) {
      slots_.give(ticket);
      return;
    }
    slot.orphan = true;
    ++orphans;
    if (slot.receiving && !finalized()) withdraw(ticket);
  }

 private:
  static constexpr std::int64_t kPatience = 2'000'000'000;  // ns in total that cancels of a transport may wait

  static int number_at(const std::byte* address) {
    int value = 0;
    std::memcpy(&value, address, sizeof value);
    return value;
  }

  Error failure(const char* doing, int peer, int code) const {
    std::array<char, 8192> text{};  // longer than any MPI_MAX_ERROR_STRING
    int length = 0;
    if (mpi_.error_string(code, text.data(), &length) != library_.success) length = 0;
    const std::string peer_text = peer == kAnyPeer ? "any rank" : "rank " + std::to_string(peer);
    const std::string why = length > 0 ? std::string(text.data()) : "error code " + std::to_string(code);
    return Error(ErrorKind::transport, concat("MPI failed while ", doing, " ", peer_text, ": ", why),
                 peer == kAnyPeer ? std::vector<int>{} : std::vector<int>{peer});
  }

  Ticket activate(Handle request, int peer, bool receiving) {
    const Ticket ticket = slots_.take();
    slots_[ticket] = {.receiving = receiving, .peer = peer};
    requests_.add(request, ticket);
    return ticket;
  }

  void complete(Ticket ticket, const std::byte* outcome) {
    Slot& slot = slots_[ticket];
    count_received(slot, outcome);
    if (slot.orphan) {
      end_orphan(ticket);
      return;
    }
    if (slot.state == State::failed) return;
    slot.state = State::complete;
    if (!slot.receiving) return;
    const Arrival arrival = arrival_of(outcome);
    slot.nbytes = arrival.nbytes;
  }

  // Counts a received message. A cancelled receive received none. A failed receive counts, because
  // MPI has dropped its message.
  void count_received(const Slot& slot, const std::byte* outcome) {
    int cancelled = 0;
    if (slot.orphan) mpi_.test_cancelled(outcome, &cancelled);
    if (slot.receiving && !cancelled) ++counts_.received[static_cast<std::size_t>(slot.peer)];
  }

  Arrival arrival_of(const std::byte* outcome) const {
    int count = 0;
    mpi_.get_count(outcome, byte_, &count);
    return {number_at(outcome + library_.status_source_offset), static_cast<std::size_t>(std::max(count, 0))};
  }

  // Marks failed messages. After an error some statuses name the failed messages
  // (MPI_ERR_IN_STATUS, a constant that mpi4py does not provide). If no status does, MPI itself has
  // failed: marks every active message and returns false.
  bool note_failures(int code, int ended) {
    bool found = false;
    for (int i = 0; i < ended; ++i) {
      const int error = number_at(requests_.status(i) + library_.status_error_offset);
      if (error == library_.success) continue;
      found = true;
      Slot& slot = slots_[requests_.ended(i)];
      slot.state = State::failed;
      slot.error = error;
    }
    if (found) return true;
    for (const Ticket ticket : requests_.tickets()) {
      if (slots_[ticket].orphan) {
        end_orphan(ticket);
      } else {
        slots_[ticket].state = State::failed;
        slots_[ticket].error = code;
      }
    }
    requests_.clear();
    return false;
  }

  void end_orphan(Ticket ticket) {
    slots_.give(ticket);
    --orphans;
  }

  void withdraw(Ticket ticket) noexcept {
    Handle& request = requests_.of(ticket);
    mpi_.cancel(&request);
    const std::int64_t begun = now_ns();
    Backoff backoff(std::chrono::microseconds(100));
    const auto look = [&] {
      int ended = 0;
      const int code = mpi_.test(&request, &ended, one_status_.data());
      return ended || code != library_.success ? Progress::done : Progress::blocked;
    };
    const bool ended = wait_until(look, backoff, begun + kPatience - waited_);
    waited_ = ended ? waited_ + (now_ns() - begun) : kPatience;
    if (!ended) return;  // an orphan until a poll finds it complete
    count_received(slots_[ticket], one_status_.data());
    if (slots_[ticket].orphan) --orphans;
    slots_.give(ticket);
    requests_.drop(ticket);
  }

  // Returns whether MPI is finalised. Python objects may outlive MPI; then no message can be
  // cancelled.
  bool finalized() const {
    int over = 0;
    mpi_.finalized(&over);
    return over != 0;
  }

  void withdraw_all() noexcept {
    if (finalized()) return;
    const std::vector<Ticket> all = requests_.tickets();
    for (const Ticket ticket : all) {
      if (slots_[ticket].receiving) withdraw(ticket);
    }
    poll();
  }

  Functions<Handle> mpi_;
  const bool* yields_;
  MpiLibrary library_;
  Handle comm_, byte_, null_;
  int rank_, size_, tag_limit_;
  Slots<Slot> slots_;
  mpi::Requests<Handle> requests_;  // requests of active messages
  std::vector<std::byte> one_status_;
  MessageCounts counts_;
  std::int64_t waited_ = 0;
};

}  // namespace

std::size_t orphaned_messages() { return orphans; }

std::unique_ptr<Transport> make_mpi_transport(const MpiLibrary& library, std::uint64_t comm, int rank, int size,
                                              int tag_limit) {
  const std::size_t room = library.status_size;
  if (room < sizeof(int) || std::max(library.status_source_offset, library.status_error_offset) > room - sizeof(int))
    throw invalid("this MPI library is not supported: its MPI_Status has ", room, " bytes");
  switch (library.handle_size) {
    case sizeof(std::int32_t):
      return std::make_unique<MpiTransport<std::int32_t>>(library, comm, rank, size, tag_limit);
    case sizeof(void*):
      return std::make_unique<MpiTransport<void*>>(library, comm, rank, size, tag_limit);
    default:
      throw invalid("this MPI library is not supported: its handles have ", library.handle_size, " bytes");
  }
}

}  // namespace ringcomm
