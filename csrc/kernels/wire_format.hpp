// What elements travel as between hosts, instead of as they are. Formats are rows of a table, as algorithms are: what
// chooses, prices, compares or runs a call asks its row, and knows no format by name.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/types.hpp"
#include "base/wire.hpp"

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
};

// What a state is for.
struct WireTensor {
  DType dtype;
  std::size_t count;  // elements
};

struct WireFormat {
  std::string_view name;
  // Whether ranks make equal bytes of equal elements. A format whose bytes also depend on a state, or on the rank, runs
  // where each value has one encoder only (schedule/prove.hpp).
  bool alike;
  double work;                             // of encoding and decoding: times what a copy of the data takes
  double (*ratio)(Wire wire, DType data);  // bytes sent for each byte of data; 1: such data travels as it is
  std::unique_ptr<Codec> (*make)(Wire wire, DType data, WireState* state);             // state: null, or keep's
  std::unique_ptr<WireState> (*keep)(Wire wire, std::span<const WireTensor> tensors);  // null: it keeps nothing
};

std::span<const WireFormat> wire_formats();

// By name, with the format's usual parameters. Throws Error(invalid) naming the known formats.
Wire find_wire(std::string_view name);
std::string_view name_of(Wire wire);  // "none" if there is none
bool known(Wire wire);                // what came from another rank
// nullptr where elements of this type travel as they are.
std::unique_ptr<Codec> make_codec(Wire wire, DType data, WireState* state = nullptr);
std::unique_ptr<WireState> make_wire_state(Wire wire, std::span<const WireTensor> tensors);  // null: it keeps nothing

// What a choice of schedules has to know of data that travels so.
struct Encoding {
  double ratio = 1, work = 0;
  bool alike = true;
  auto operator<=>(const Encoding&) const = default;
};
Encoding encoding_of(Wire wire, DType data);

}  // namespace ringcomm
