// The array of a rank, wherever it lies: in one place or in several.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/call.hpp"

namespace ringcomm {

class Scattered {
 public:
  struct Stretch {  // of memory, from some place on
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::size_t nbytes = 0;
    bool in_place() const { return input == output; }
  };

  // Without fragments, one that takes the whole. `whole` and `fragments` must live as long as this.
  Scattered(const Fragment& whole, const std::vector<Fragment>& fragments, std::size_t item)
      : fragments_(fragments.empty() ? &whole : fragments.data()), item_(item) {
    std::size_t first = 0;
    for (const Fragment& fragment : fragments) {
      starts_.push_back(first);
      first += fragment.count * item;
    }
  }
  // From this byte of the array on.
  Stretch from(std::size_t byte) const {
    std::size_t number = 0, inside = byte;
    if (!starts_.empty()) {  // fragments without elements begin where the next one does
      number = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), byte) - starts_.begin()) - 1;
      inside = byte - starts_[number];
    }
    const Fragment& fragment = fragments_[number];
    return {static_cast<const std::byte*>(fragment.input) + inside, static_cast<std::byte*>(fragment.output) + inside,
            fragment.count * item_ - inside};
  }
  // act(stretch, bytes before it) of all that these bytes lie in.
  template <class Act>
  void each(std::size_t first, std::size_t nbytes, Act act) const {
    for (std::size_t done = 0; done < nbytes;) {
      Stretch stretch = from(first + done);
      stretch.nbytes = std::min(stretch.nbytes, nbytes - done);
      act(stretch, done);
      done += stretch.nbytes;
    }
  }

 private:
  const Fragment* fragments_;
  const std::size_t item_;
  std::vector<std::size_t> starts_;  // bytes; empty: there is one fragment
};

}  // namespace ringcomm
