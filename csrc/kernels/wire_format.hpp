// What elements travel as between hosts, instead of as they are. Formats are rows of a table, as algorithms are: what
// chooses, prices, compares or runs a call asks its row, and knows no format by name.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/types.hpp"

namespace ringcomm {

// Which elements an encoder has before it: what it would keep a residual by.
struct CodecKey {
  std::uint64_t tensor = 0;  // of those that a WireState is for: a plan's bucket
  std::size_t segment = 0;
  std::int32_t block = 0;  // of the schedule; scratch has blocks of its own
};

// What encoders keep from one call to the next, such as what they still owe. It lives beside a plan, longer than calls.
class WireState {
 public:
  virtual ~WireState() = default;
};

// Encodes the blocks of one run of a schedule. What a rank has encoded, or received, it sends on as the same bytes: no
// format needs to make the same of what it decodes to.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual std::size_t capacity(std::size_t count) const = 0;  // most bytes encode() writes for `count` elements
  virtual std::size_t encode(const CodecKey& key, const void* block, std::size_t count, void* wire) = 0;  // bytes
  virtual void decode(const void* wire, std::size_t nbytes, void* block, std::size_t count) = 0;
  // block = wire op block, or block op wire
  virtual void decode_reduce(const void* wire, std::size_t nbytes, void* block, std::size_t count, Op op,
                             bool incoming_first) = 0;
  // Whether ranks make equal bytes of equal elements. One whose bytes also depend on its state or rank does not, and
  // runs on schedules with one encoder only (schedule/prove.hpp).
  virtual bool alike() const { return true; }
};

// A format as a call asks for it, with its parameters. Ranks compare all 8 bytes, and rebuild it from them.
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

struct WireFormat {
  std::string_view name;
  bool alike;                              // as Codec::alike
  double encoding, decoding;               // of an element: times what a copy of it takes
  double (*ratio)(Wire wire, DType data);  // bytes sent for each byte of data; 1: such data travels as it is
  std::unique_ptr<Codec> (*make)(Wire wire, DType data, WireState* state);
  std::unique_ptr<WireState> (*keep)(Wire wire, DType data, std::span<const std::size_t> tensors);  // null: nothing
};

std::span<const WireFormat> wire_formats();

// By name, with the format's usual parameters. Throws Error(invalid) naming the known formats.
Wire find_wire(std::string_view name);
std::string_view name_of(Wire wire);  // "none" if there is none
bool known(Wire wire);                // what came from another rank
double ratio_of(Wire wire, DType data);
// Seconds of encoding and decoding a byte of data, where copying one takes `copy`.
double coding_of(Wire wire, DType data, double copy);
// nullptr where elements of this type travel as they are.
std::unique_ptr<Codec> make_codec(Wire wire, DType data, WireState* state = nullptr);

}  // namespace ringcomm
