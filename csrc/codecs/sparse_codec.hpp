// Declares the sparsifying codecs, which send few elements with their positions. A message is a
// head, the entries' values, and for each entry the bits of its gap (kernels::SparseJob).
#pragma once

#include <memory>

#include "base/wire.hpp"
#include "codecs/codec.hpp"
#include "codecs/feedback.hpp"

namespace ringcomm {

inline constexpr std::uint8_t kHalfValues = 4;  // bit of Wire::mode

// The best code for gaps, if a given share of all elements are entries, at random positions.
struct GapCode {
  unsigned low = 0;
  double bits = 0;  // mean length of a gap's code
};
GapCode gap_code(double share);

// Returns a codec that sends the largest elements. `amount` is their share of all elements (Aji and
// Heafield, arXiv:1704.05021; Lin et al., arXiv:1712.01887). A sample determines the threshold.
std::unique_ptr<Codec> make_top_codec(Wire wire, DType data, Feedback* feedback);
// Returns a codec with the threshold `amount`, t. An element of magnitude t or more is sent as t
// with its sign (Strom, Interspeech 2015).
std::unique_ptr<Codec> make_threshold_codec(Wire wire, DType data, Feedback* feedback);

}  // namespace ringcomm
