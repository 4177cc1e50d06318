// Stores texts in fields of a fixed length, so that a struct of them is compared and sent as bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace ringcomm {

// Truncates text to fit, ends it with a zero, and never splits a UTF-8 character. Bytes behind the
// zero keep their values.
template <std::size_t N>
void write_field(char (&field)[N], std::string_view text) {
  std::size_t length = std::min(text.size(), N - 1);
  const auto continues = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u; };
  while (length > 0 && length < text.size() && continues(length)) --length;
  if (length > 0) std::memcpy(field, text.data(), length);
  field[length] = 0;
}

template <std::size_t N>
std::string_view text_of(const char (&field)[N]) {
  return {field, ::strnlen(field, N)};
}

}  // namespace ringcomm
