// Defines the wire formats: the encodings of elements between hosts. Formats are rows of a table,
// as algorithms are. Code that chooses, prices, compares or runs a call reads only the row.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/account.hpp"
#include "base/types.hpp"
#include "base/wire.hpp"
#include "codecs/codec.hpp"
#include "codecs/feedback.hpp"

namespace ringcomm {

struct WireFormat {
  std::string_view name;
  Wire usual;  // default parameters
  // True if encoding is idempotent rounding, equal on all ranks. Other formats lose information in
  // each encoding, and the result may depend on the rank. They run only where each element is
  // encoded once by its rank before it is summed, and each sum once, by one rank
  // (schedule/prove.hpp). They may use error feedback.
  bool rounds;
  double work;                             // time of encoding and decoding, relative to a copy of the data
  bool (*valid)(Wire wire);                // true if the parameters are valid
  double (*ratio)(Wire wire, DType data);  // bytes sent per byte of data; 1: data of this type is not encoded
  std::string (*parameters)(Wire wire);    // text for users; empty if there are none
  std::unique_ptr<Codec> (*make)(Wire wire, DType data, Feedback* feedback);
};

std::span<const WireFormat> wire_formats();

// Returns a format with its default parameters. Throws Error(invalid) with the known names.
Wire find_wire(std::string_view name);
void check_wire(Wire wire);           // throws Error(invalid) for invalid parameters
std::string_view name_of(Wire wire);  // "none" without a format
std::string text_of(Wire wire);       // name with parameters
bool known(Wire wire);                // true if format and parameters are valid; for formats that other ranks sent
bool rounds(Wire wire);               // true also without a format
// Returns nullptr if elements of this type are not encoded.
std::unique_ptr<Codec> make_codec(Wire wire, DType data, Feedback* feedback = nullptr);

// Wraps a codec: adds its time to `ns`, and traces its calls. `ns` must outlive the result.
std::shared_ptr<Codec> make_watched_codec(std::shared_ptr<Codec> codec, Count& ns);

// Properties of encoded data that the choice of schedules needs.
struct Encoding {
  double ratio = 1, work = 0;
  bool rounds = true;
  auto operator<=>(const Encoding&) const = default;
};
Encoding encoding_of(Wire wire, DType data);

}  // namespace ringcomm
