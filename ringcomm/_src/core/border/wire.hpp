// Wire formats and codecs for _wire.pxi, with types that Cython can pass.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "codecs/wire_format.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline std::vector<std::string> wire_names() {
  std::vector<std::string> names;
  for (const WireFormat& format : wire_formats()) names.emplace_back(format.name);
  return names;
}
// Returns the code of a wire format. Negative arguments select the format's defaults.
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
// Makes a codec, which keeps `feedback` (may be null) alive. Throws Error(invalid) if the format
// does not encode this dtype.
inline std::shared_ptr<Codec> codec(std::uint64_t code, int dtype, std::shared_ptr<Feedback> feedback) {
  std::shared_ptr<Codec> made = make_codec(Wire::of(code), static_cast<DType>(dtype), feedback.get());
  if (!made) throw Error(ErrorKind::invalid, text_of(Wire::of(code)) + " does not shorten elements of this dtype");
  Codec* const it = made.get();
  return {it, [made = std::move(made), feedback = std::move(feedback)](Codec*) {}};
}
inline std::size_t encode(Codec& codec, std::uintptr_t block, std::size_t count, std::uintptr_t wire) {
  return codec.encode({}, reinterpret_cast<void*>(block), count, reinterpret_cast<void*>(wire));
}
inline void decode(Codec& codec, std::uintptr_t wire, std::size_t nbytes, std::uintptr_t block, std::size_t count,
                   bool add) {
  auto* const from = reinterpret_cast<const void*>(wire);
  auto* const to = reinterpret_cast<void*>(block);
  if (add) return codec.decode_reduce(from, nbytes, to, count, Op::sum, false);
  codec.decode(from, nbytes, to, count);
}
}  // namespace ringcomm_border
