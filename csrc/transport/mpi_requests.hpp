// Holds the messages that MPI has in flight, in arrays without gaps, as MPI_Testsome needs them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "transport/mpi.hpp"
#include "transport/mpi_functions.hpp"

namespace ringcomm::mpi {

template <class Handle>
class Requests {
 public:
  explicit Requests(std::size_t status_size) : status_size_(status_size) {}
  std::size_t size() const { return requests_.size(); }
  const std::vector<Ticket>& tickets() const { return tickets_; }

  void add(Handle request, Ticket ticket) {
    requests_.push_back(request);
    tickets_.push_back(ticket);
    if (indices_.size() >= requests_.size()) return;
    indices_.resize(requests_.size() * 2);
    statuses_.resize(indices_.size() * status_size_);
  }
  Handle& of(Ticket ticket) {
    return requests_[static_cast<std::size_t>(std::find(tickets_.begin(), tickets_.end(), ticket) - tickets_.begin())];
  }
  void clear() {
    requests_.clear();
    tickets_.clear();
  }

  // Finds completed requests, which stay in the arrays until dropped. Returns MPI's code.
  int test(const Functions<Handle>& mpi, int& ended) {
    return mpi.testsome(static_cast<int>(size()), requests_.data(), &ended, indices_.data(), statuses_.data());
  }
  Ticket ended(int index) const { return tickets_[position(index)]; }
  const std::byte* status(int index) const { return statuses_.data() + static_cast<std::size_t>(index) * status_size_; }

  // Drops completed requests; the remaining ones keep their order.
  void drop_ended(int count) {
    for (int i = 0; i < count; ++i) tickets_[position(i)] = kNoTicket;
    close_gaps();
  }
  void drop(Ticket ticket) {
    std::replace(tickets_.begin(), tickets_.end(), ticket, kNoTicket);
    close_gaps();
  }

 private:
  std::size_t position(int index) const { return static_cast<std::size_t>(indices_[static_cast<std::size_t>(index)]); }
  void close_gaps() {
    auto kept = static_cast<std::size_t>(std::find(tickets_.begin(), tickets_.end(), kNoTicket) - tickets_.begin());
    for (std::size_t i = kept; i < size(); ++i) {
      if (tickets_[i] == kNoTicket) continue;
      requests_[kept] = requests_[i];
      tickets_[kept++] = tickets_[i];
    }
    requests_.resize(kept);
    tickets_.resize(kept);
  }

  const std::size_t status_size_;
  std::vector<Handle> requests_;
  std::vector<Ticket> tickets_;
  std::vector<int> indices_;
  std::vector<std::byte> statuses_;
};

}  // namespace ringcomm::mpi
