// Holds the addresses of all ranks' arrays, which are in the host's shared memory. Each array is
// one piece of memory, or consists of stretches. The lengths of stretches are equal on all ranks,
// but their addresses are arbitrary. SharedPass reduces the arrays in place.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "base/call.hpp"
#include "base/cuts.hpp"
#include "shm/epochs.hpp"

namespace ringcomm {

class HostArrays {
 public:
  // Publishes the location of this rank's array in its call header and payload. Returns false, and
  // publishes that, in three cases: the call is not in place, the array is outside the arena, or a
  // payload cannot hold all its stretches.
  static bool publish(Epochs& epochs, const Call& call);

  // Collects the locations after all ranks have arrived. Returns an empty value if some array is
  // not shared. Sets `any`: true if at least one array is shared.
  static std::optional<HostArrays> collect(Epochs& epochs, const Call& call, bool& any);

  std::size_t ranks() const { return ranks_; }
  // Calls act(addresses, done, count) for each stretch that holds elements of `part`. `addresses`:
  // by local rank, of `count` elements. `done`: elements of `part` in earlier stretches.
  template <class Act>
  void each(Part part, Act act) const {
    stretches_.each(part, [&](std::size_t index, std::size_t first, std::size_t done, std::size_t count) {
      for (std::size_t rank = 0; rank < ranks_; ++rank) here_[rank] = starts_[index * ranks_ + rank] + first * item_;
      act(std::span<std::byte* const>(here_), done, count);
    });
  }
  std::byte* piece(std::size_t rank, Part part) const;  // null: the part spans several stretches

 private:
  HostArrays(std::size_t ranks, std::size_t item) : ranks_(ranks), item_(item), here_(ranks) {}

  std::size_t ranks_, item_;
  Stretches stretches_;
  std::vector<std::byte*> starts_;        // start of each stretch, by rank
  mutable std::vector<std::byte*> here_;  // used by each()
};

}  // namespace ringcomm
