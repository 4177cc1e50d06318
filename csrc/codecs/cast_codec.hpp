// Declares the codec that casts floating data to a narrower dtype on the wire: float32 or float64
// to bfloat16 or float16 (or float32).
#pragma once

#include <memory>

#include "codecs/wire_format.hpp"

namespace ringcomm {

std::unique_ptr<Codec> make_cast_codec(DType data, DType wire);

}  // namespace ringcomm
