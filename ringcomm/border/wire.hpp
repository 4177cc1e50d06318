// What elements travel as (_wire.pxi), in types that Cython passes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codecs/wire_format.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline std::vector<std::string> wire_names() {
  std::vector<std::string> names;
  for (const WireFormat& format : wire_formats()) names.emplace_back(format.name);
  return names;
}
// What is negative is as usual.
inline std::uint64_t wire_code(const std::string& name, int mode, int group, float amount) {
  Wire wire = find_wire(name);
  if (mode >= 0) wire.mode = static_cast<std::uint8_t>(mode);
  if (group >= 0) wire.group = static_cast<std::uint16_t>(group > 65535 ? 65535 : group);
  if (!(amount < 0)) wire.amount = amount;
  check_wire(wire);
  return wire.code();
}
inline double wire_ratio(std::uint64_t code, int dtype) {
  return encoding_of(Wire::of(code), static_cast<DType>(dtype)).ratio;
}
inline bool wire_rounds(std::uint64_t code) { return rounds(Wire::of(code)); }
inline std::string wire_text(std::uint64_t code) { return text_of(Wire::of(code)); }
inline std::shared_ptr<Feedback> feedback(const std::vector<std::size_t>& counts) {
  return std::make_shared<Feedback>(counts);
}
}  // namespace ringcomm_border
