// Tickets: numbers of slots in a table that grows to the most messages ever in flight and is reused from then on.
#pragma once

#include <vector>

#include "transport/transport.hpp"

namespace ringcomm {

template <class Slot>
class Slots {
 public:
  Ticket take() {
    if (free_.empty()) {
      slots_.emplace_back();
      used_.push_back(true);
      free_.reserve(slots_.size());  // give() then never allocates
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
  // Whether a ticket names a message; false for one that is gone, or never was.
  bool holds(Ticket ticket) const {
    return ticket >= 0 && static_cast<std::size_t>(ticket) < slots_.size() && used_[static_cast<std::size_t>(ticket)];
  }
  Slot& operator[](Ticket ticket) { return slots_[static_cast<std::size_t>(ticket)]; }
  Ticket end() const { return static_cast<Ticket>(slots_.size()); }  // tickets are 0 .. end()-1

 private:
  std::vector<Slot> slots_;
  std::vector<char> used_;
  std::vector<Ticket> free_;
};

}  // namespace ringcomm
