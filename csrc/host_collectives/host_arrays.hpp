// Holds the addresses of all ranks' inputs and outputs, which are in the host's shared memory. In a
// call in place, both are the same array. Each array is one piece of memory, or consists of
// stretches. The lengths of stretches are equal on all ranks, but their addresses are arbitrary.
// SharedPass reduces from and into these arrays.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "base/call.hpp"
#include "base/cuts.hpp"
#include "shm/epochs.hpp"

namespace ringcomm {

class HostArrays {
 public:
  // Publishes the locations of this rank's arrays in its call header and payload. Returns false,
  // and publishes that, if an array is outside the arena, or if a payload cannot hold all
  // stretches.
  static bool publish(Epochs& epochs, const Call& call);

  // Collects the locations after all ranks have arrived. Returns an empty value if some array is
  // not shared. Sets `any`: true if at least one array is shared.
  static std::optional<HostArrays> collect(Epochs& epochs, const Call& call, bool& any);

  std::size_t ranks() const { return ranks_; }
  // The inputs and the outputs of a stretch, by local rank.
  struct Places {
    std::vector<std::byte*> inputs, outputs;
  };
  // Calls act(places, done, count) for each stretch that holds elements of `part`. `places`: of
  // `count` elements. `done`: elements of `part` in earlier stretches.
  template <class Act>
  void each(Part part, Act act) const {
    stretches_.each(part, [&](std::size_t index, std::size_t first, std::size_t done, std::size_t count) {
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        here_.inputs[rank] = starts_.inputs[index * ranks_ + rank] + first * item_;
        here_.outputs[rank] = starts_.outputs[index * ranks_ + rank] + first * item_;
      }
      act(std::as_const(here_), done, count);
    });
  }
  // Returns the address of a part of this rank's output; null: the part spans several stretches.
  std::byte* output_of(std::size_t rank, Part part) const;

 private:
  HostArrays(std::size_t ranks, std::size_t item)
      : ranks_(ranks), item_(item), here_{std::vector<std::byte*>(ranks), std::vector<std::byte*>(ranks)} {}

  std::size_t ranks_, item_;
  Stretches stretches_;
  Places starts_;        // start of each stretch, by rank
  mutable Places here_;  // used by each()
};

}  // namespace ringcomm
