// What elements travel as between hosts, instead of as they are. Formats are rows of a table, as algorithms are: what
// chooses, prices, compares or runs a call asks its row, and knows no format by name.
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
  Wire usual;  // parameters
  // Whether what it does is rounding, once and again alike. Another format loses something each time, which may depend
  // on the rank: it runs where a rank's elements are encoded once before they are summed, and the sum once, by one rank
  // (schedule/prove.hpp), and it may hold back what it has lost.
  bool rounds;
  double work;                             // of encoding and decoding: times what a copy of the data takes
  bool (*valid)(Wire wire);                // the parameters
  double (*ratio)(Wire wire, DType data);  // bytes sent for each byte of data; 1: such data travels as it is
  std::string (*parameters)(Wire wire);    // for people; empty if there are none
  std::unique_ptr<Codec> (*make)(Wire wire, DType data, Feedback* feedback);
};

std::span<const WireFormat> wire_formats();

// By name, with the format's usual parameters. Throws Error(invalid) naming the known formats.
Wire find_wire(std::string_view name);
void check_wire(Wire wire);           // throws Error(invalid) for parameters that are none
std::string_view name_of(Wire wire);  // "none" if there is none
std::string text_of(Wire wire);       // with its parameters
bool known(Wire wire);                // what came from another rank
bool rounds(Wire wire);               // or it is none
// nullptr where elements of this type travel as they are.
std::unique_ptr<Codec> make_codec(Wire wire, DType data, Feedback* feedback = nullptr);

// The same, which adds what time it takes to `ns`, and traces what it does; `ns` lives longer.
std::shared_ptr<Codec> make_watched_codec(std::shared_ptr<Codec> codec, Count& ns);

// What a choice of schedules has to know of data that travels so.
struct Encoding {
  double ratio = 1, work = 0;
  bool rounds = true;
  auto operator<=>(const Encoding&) const = default;
};
Encoding encoding_of(Wire wire, DType data);

}  // namespace ringcomm
