#include "kernels/wire_format.hpp"

#include <array>
#include <string>

#include "base/error.hpp"
#include "kernels/cast_codec.hpp"

namespace ringcomm {
namespace {

template <DType wire>
constexpr WireFormat cast_format() {
  constexpr double kWork = 1.35;  // measured: .21 to .28 ns each way for a float32, where a copy takes .35
  return {info(wire).name,
          true,
          kWork,
          [](Wire, DType data) {
            const bool narrows = info(data).floating && size_of(wire) < size_of(data);
            return narrows ? static_cast<double>(size_of(wire)) / static_cast<double>(size_of(data)) : 1.0;
          },
          [](Wire, DType data, WireState*) { return make_cast_codec(data, wire); },
          nullptr};
}

constexpr std::array kFormats{cast_format<DType::float16>(), cast_format<DType::bfloat16>(),
                              cast_format<DType::float32>(), cast_format<DType::float64>()};

const WireFormat& row(Wire wire) { return kFormats.at(wire.format - 1u); }

}  // namespace

std::span<const WireFormat> wire_formats() { return kFormats; }

Wire find_wire(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    if (kFormats[i].name == name) return {static_cast<std::uint8_t>(i + 1)};
    known += (i > 0 ? ", " : "") + std::string(kFormats[i].name);
  }
  throw Error(ErrorKind::invalid, "there is no wire format '" + std::string(name) + "'; known: " + known);
}

std::string_view name_of(Wire wire) { return !wire ? "none" : known(wire) ? row(wire).name : "unknown"; }

bool known(Wire wire) { return wire.format <= kFormats.size(); }

Encoding encoding_of(Wire wire, DType data) {
  const double ratio = wire ? row(wire).ratio(wire, data) : 1;
  return ratio < 1 ? Encoding{ratio, row(wire).work, row(wire).alike} : Encoding{};
}

std::unique_ptr<Codec> make_codec(Wire wire, DType data, WireState* state) {
  return encoding_of(wire, data).ratio < 1 ? row(wire).make(wire, data, state) : nullptr;
}

std::unique_ptr<WireState> make_wire_state(Wire wire, std::span<const WireTensor> tensors) {
  return wire && row(wire).keep ? row(wire).keep(wire, tensors) : nullptr;
}

}  // namespace ringcomm
