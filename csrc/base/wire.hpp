// Defines the wire format that a call requests: a format (codecs/wire_format.hpp) and parameters.
#pragma once

#include <bit>
#include <cstdint>

namespace ringcomm {

// A wire format and its parameters in 8 bytes. Ranks compare these bytes, and can rebuild the
// format from them.
struct Wire {
  std::uint8_t format = 0;  // row of wire_formats(), counted from 1; 0: not encoded
  std::uint8_t mode = 0;    // parameters, interpreted by the format
  std::uint16_t group = 0;
  float amount = 0;

  explicit operator bool() const { return format != 0; }
  std::uint64_t code() const { return std::bit_cast<std::uint64_t>(*this); }
  static Wire of(std::uint64_t code) { return std::bit_cast<Wire>(code); }
  bool operator==(const Wire& other) const { return code() == other.code(); }
};

}  // namespace ringcomm
