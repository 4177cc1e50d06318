// Builds texts from parts, for error messages.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>

namespace ringcomm {

// Concatenates the parts: texts unchanged, integers in decimal.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::string all;
  const auto put = [&](const auto& part) {
    if constexpr (std::integral<std::remove_cvref_t<decltype(part)>>) {
      all += std::to_string(part);
    } else {
      all += part;
    }
  };
  (put(parts), ...);
  return all;
}

}  // namespace ringcomm
