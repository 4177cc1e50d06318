// Sparsifiers: few elements, with where they are. A message is a head, entries' values, and for each some bits that
// tell where it is (kernels::SparseJob).
#pragma once

#include <memory>

#include "base/wire.hpp"
#include "codecs/codec.hpp"
#include "codecs/feedback.hpp"

namespace ringcomm {

inline constexpr std::uint8_t kHalfValues = 4;  // bit of Wire::mode

// The code of the gaps between entries that are such a share of all elements, wherever they may lie.
struct GapCode {
  unsigned low = 0;
  double bits = 0;  // of a gap, in the mean
};
GapCode gap_code(double share);

// `amount`: the share of elements that is sent, the largest (Aji and Heafield, arXiv:1704.05021; Lin et al.,
// arXiv:1712.01887). The threshold is that of a sample.
std::unique_ptr<Codec> make_top_codec(Wire wire, DType data, Feedback* feedback);
// `amount`: t. An element of at least t travels as t with its sign (Strom, Interspeech 2015).
std::unique_ptr<Codec> make_threshold_codec(Wire wire, DType data, Feedback* feedback);

}  // namespace ringcomm
