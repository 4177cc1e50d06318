// Describes a rank's array, in one piece or in fragments, for passes that work on parts of it.
#pragma once

#include <cstddef>
#include <vector>

#include "base/call.hpp"
#include "base/cuts.hpp"

namespace ringcomm {

class Scattered {
 public:
  struct Piece {  // part of one fragment
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::size_t count = 0;  // elements
    bool in_place() const { return input == output; }
  };

  // Without fragments the array is `whole`. `whole` and `fragments` must outlive this object.
  Scattered(const Fragment& whole, const std::vector<Fragment>& fragments, std::size_t item)
      : fragments_(fragments.empty() ? &whole : fragments.data()), item_(item) {
    for (const Fragment& fragment : fragments) stretches_.add(fragment.count);
  }
  // Calls act(piece, done) for each piece of `part`. `done`: elements of `part` in earlier pieces.
  template <class Act>
  void each(Part part, Act act) const {
    stretches_.each(part, [&](std::size_t index, std::size_t first, std::size_t done, std::size_t count) {
      const Fragment& fragment = fragments_[index];
      act(Piece{at(fragment.input, first * item_), at(fragment.output, first * item_), count}, done);
    });
  }

 private:
  const Fragment* fragments_;
  const std::size_t item_;
  Stretches stretches_;
};

}  // namespace ringcomm
