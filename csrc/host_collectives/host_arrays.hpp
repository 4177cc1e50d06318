// The arrays of a host's ranks, which all lie in its shared memory: each in one piece, or in stretches that are as long
// on every rank and lie anywhere.
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
  // Says in this rank's opening, and its payload, where its array lies. False, and says so, if that is not in place in
  // its arena, or in more stretches than a payload has room for.
  static bool publish(Epochs& epochs, const Call& call);

  // What all ranks have said, once they have arrived. Nothing if some array is not shared; `any`: whether some is.
  static std::optional<HostArrays> collect(Epochs& epochs, const Call& call, bool& any);

  std::size_t ranks() const { return ranks_; }
  // act(addresses by local rank, elements of the part before them, elements) of all stretches that hold some of it.
  template <class Act>
  void each(Part part, Act act) const {
    stretches_.each(part, [&](std::size_t index, std::size_t first, std::size_t done, std::size_t count) {
      for (std::size_t rank = 0; rank < ranks_; ++rank) here_[rank] = starts_[index * ranks_ + rank] + first * item_;
      act(std::span<std::byte* const>(here_), done, count);
    });
  }
  std::byte* piece(std::size_t rank, Part part) const;  // null: the part is in several

 private:
  HostArrays(std::size_t ranks, std::size_t item) : ranks_(ranks), item_(item), here_(ranks) {}

  std::size_t ranks_, item_;
  Stretches stretches_;
  std::vector<std::byte*> starts_;        // of each stretch, by rank
  mutable std::vector<std::byte*> here_;  // for each()
};

}  // namespace ringcomm
