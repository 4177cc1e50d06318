// Declares the quantising codecs: groups of elements share a scale, and each element has a code.
#pragma once

#include <memory>

#include "base/wire.hpp"
#include "codecs/codec.hpp"
#include "codecs/feedback.hpp"
#include "kernels/quantise.hpp"

namespace ringcomm {

// Bits of Wire::mode.
inline constexpr std::uint8_t kDrawn = 1, kTwoMeans = 2;

bool valid_group(Wire wire);
double group_ratio(kernels::Quantiser how, Wire wire, DType data);
std::unique_ptr<Codec> make_group_codec(kernels::Quantiser how, Wire wire, DType data, Feedback* feedback);

}  // namespace ringcomm
