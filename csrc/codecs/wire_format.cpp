// Contains the table of wire formats, and looks formats up in it.
#include "codecs/wire_format.hpp"

#include <array>
#include <cstdio>

#include "base/error.hpp"
#include "codecs/cast_codec.hpp"
#include "codecs/group_codec.hpp"
#include "codecs/sparse_codec.hpp"

namespace ringcomm {
namespace {

constexpr auto kPlain = [](Wire wire) { return wire.mode == 0 && wire.group == 0 && wire.amount == 0; };
constexpr auto kNoText = [](Wire) { return std::string(); };

std::string text_of(float number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", static_cast<double>(number));
  return text;
}

template <DType wire>
constexpr WireFormat cast_format() {
  constexpr double kWork = 1.35;  // measured: .21 to .28 ns per float32 and direction; a copy takes .35 ns
  return {info(wire).name,
          {},
          true,
          kWork,
          kPlain,
          [](Wire, DType data) {
            const bool narrows = info(data).floating && size_of(wire) < size_of(data);
            return narrows ? static_cast<double>(size_of(wire)) / static_cast<double>(size_of(data)) : 1.0;
          },
          kNoText,
          [](Wire, DType data, Feedback*) { return make_cast_codec(data, wire); }};
}

template <kernels::Quantiser how>
constexpr WireFormat group_format(std::string_view name, Wire usual) {
  constexpr double kWork = 1.7;  // measured against a copy, with feedback
  return {name,
          usual,
          false,
          kWork,
          valid_group,
          [](Wire wire, DType data) { return group_ratio(how, wire, data); },
          [](Wire wire) {
            std::string text = "group=" + std::to_string(wire.group);
            if (wire.mode & kDrawn) text += ", stochastic";
            if (wire.mode & kTwoMeans) text += ", two means";
            if (wire.amount > 0) text += ", threshold=" + text_of(wire.amount);
            return text;
          },
          [](Wire wire, DType data, Feedback* feedback) { return make_group_codec(how, wire, data, feedback); }};
}

constexpr auto kShare = [](Wire wire) {
  return wire.amount > 0 && wire.amount <= 1 && (wire.mode & ~kHalfValues) == 0;
};
constexpr auto kShareText = [](Wire wire) {
  return "ratio=" + text_of(wire.amount) + (wire.mode & kHalfValues ? ", bfloat16 values" : "");
};
// Share of elements sent, times the bytes of an entry (value and gap) per byte of an element.
constexpr auto kTopRatio = [](Wire wire, DType data) {
  const double entry = (wire.mode & kHalfValues ? 2 : 4) + gap_code(wire.amount).bits / 8;
  return info(data).floating ? static_cast<double>(wire.amount) * entry / static_cast<double>(size_of(data)) : 1;
};
constexpr auto kThresholdRatio = [](Wire, DType data) {  // unknown in advance: assumes one in fifty
  return info(data).floating ? 0.02 * 1.1 / static_cast<double>(size_of(data)) : 1;
};
constexpr auto kPositive = [](Wire wire) { return wire.amount > 0 && wire.amount < 1e30f && wire.mode == 0; };
constexpr auto kThresholdText = [](Wire wire) { return "threshold=" + text_of(wire.amount); };
constexpr double kSparseWork = 1.4;

constexpr std::array kFormats{
    cast_format<DType::float16>(),
    cast_format<DType::bfloat16>(),
    cast_format<DType::float32>(),
    cast_format<DType::float64>(),
    group_format<kernels::Quantiser::int8>("int8", {.group = 256}),
    group_format<kernels::Quantiser::int4>("int4", {.group = 256}),
    group_format<kernels::Quantiser::sign>("onebit", {.group = 1024}),
    group_format<kernels::Quantiser::ternary>("ternary", {.group = 512, .amount = .75f}),
    WireFormat{"topk", {.amount = .01f}, false, kSparseWork, kShare, kTopRatio, kShareText, make_top_codec},
    WireFormat{"threshold",
               {.amount = .01f},
               false,
               kSparseWork,
               kPositive,
               kThresholdRatio,
               kThresholdText,
               make_threshold_codec},
};

const WireFormat& row(Wire wire) { return kFormats.at(wire.format - 1u); }

}  // namespace

std::span<const WireFormat> wire_formats() { return kFormats; }

Wire find_wire(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kFormats.size(); ++i) {
    if (kFormats[i].name == name) {
      Wire wire = kFormats[i].usual;
      wire.format = static_cast<std::uint8_t>(i + 1);
      return wire;
    }
    known += (i > 0 ? ", " : "") + std::string(kFormats[i].name);
  }
  throw Error(ErrorKind::invalid, "there is no wire format '" + std::string(name) + "'; known: " + known);
}

std::string_view name_of(Wire wire) {
  return !wire ? "none" : wire.format <= kFormats.size() ? row(wire).name : "unknown";
}

std::string text_of(Wire wire) {
  const std::string parameters = wire && known(wire) ? row(wire).parameters(wire) : "";
  return std::string(name_of(wire)) + (parameters.empty() ? "" : "(" + parameters + ")");
}

bool known(Wire wire) { return !wire || (wire.format <= kFormats.size() && row(wire).valid(wire)); }

void check_wire(Wire wire) {
  if (known(wire)) return;
  throw Error(ErrorKind::invalid, "wire format '" + std::string(name_of(wire)) +
                                      "' has invalid parameters: a group must be a multiple of 32 up to 2048 elements, "
                                      "a ratio above 0 and at most 1, a threshold above 0");
}

bool rounds(Wire wire) { return !wire || row(wire).rounds; }

Encoding encoding_of(Wire wire, DType data) {
  const double ratio = wire ? row(wire).ratio(wire, data) : 1;
  return ratio < 1 ? Encoding{ratio, row(wire).work, row(wire).rounds} : Encoding{};
}

std::unique_ptr<Codec> make_codec(Wire wire, DType data, Feedback* feedback) {
  return encoding_of(wire, data).ratio < 1 ? row(wire).make(wire, data, feedback) : nullptr;
}

}  // namespace ringcomm
