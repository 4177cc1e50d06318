// Contains the code that all transports share. Tickets are indices of slots in a table, which grows
// to the maximum number of messages in flight and is then reused.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "transport/transport.hpp"

namespace ringcomm {

inline void check_message(const Transport& transport, int peer, int tag, std::size_t nbytes) {
  if (peer >= 0 && peer < transport.size() && tag >= 0 && tag < transport.tag_limit() && nbytes <= kLongestMessage)
    return;
  throw Error(ErrorKind::internal, concat("invalid message: peer ", peer, ", tag ", tag, ", ", nbytes, " bytes"));
}

template <class Slot>
class Slots {
 public:
  Ticket take() {
    if (free_.empty()) {
      slots_.emplace_back();
      used_.push_back(true);
      free_.reserve(slots_.size());  // so that give() never allocates
      return static_cast<Ticket>(slots_.size() - 1);
    }
    const Ticket ticket = free_.back();
    free_.pop_back();
    used_[static_cast<std::size_t>(ticket)] = true;
    return ticket;
  }
  void give(Ticket ticket) noexcept {
    slots_[static_cast<std::size_t>(ticket)] = Slot{};
    used_[static_cast<std::size_t>(ticket)] = false;
    free_.push_back(ticket);
  }
  // Returns whether a ticket names a message: false if it has finished or never existed.
  bool holds(Ticket ticket) const {
    return ticket >= 0 && static_cast<std::size_t>(ticket) < slots_.size() && used_[static_cast<std::size_t>(ticket)];
  }
  Slot& at(Ticket ticket) {
    if (!holds(ticket)) throw Error(ErrorKind::internal, "ticket " + std::to_string(ticket) + " names no message");
    return (*this)[ticket];
  }
  Slot& operator[](Ticket ticket) { return slots_[static_cast<std::size_t>(ticket)]; }
  Ticket end() const { return static_cast<Ticket>(slots_.size()); }  // tickets are 0 .. end()-1

 private:
  std::vector<Slot> slots_;
  std::vector<char> used_;
  std::vector<Ticket> free_;
};

}  // namespace ringcomm
