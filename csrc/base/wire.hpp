// What a call asks its elements to travel as between hosts: a format (codecs/wire_format.hpp) with its parameters.
#pragma once

#include <bit>
#include <cstdint>

namespace ringcomm {

// Ranks compare all 8 bytes, and rebuild it from them.
struct Wire {
  std::uint8_t format = 0;  // row of wire_formats(), counted from 1; 0: as they are
  std::uint8_t mode = 0;    // parameters; what they mean is the format's
  std::uint16_t group = 0;
  float amount = 0;

  explicit operator bool() const { return format != 0; }
  std::uint64_t code() const { return std::bit_cast<std::uint64_t>(*this); }
  static Wire of(std::uint64_t code) { return std::bit_cast<Wire>(code); }
  bool operator==(const Wire& other) const { return code() == other.code(); }
};

}  // namespace ringcomm
