// Allocates memory that is aligned to a cache line, so that no other data shares its first line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

namespace ringcomm {

inline std::shared_ptr<std::byte[]> aligned_bytes(std::size_t nbytes) {
  constexpr std::align_val_t kAlign{64};
  auto* data = static_cast<std::byte*>(::operator new[](std::max<std::size_t>(nbytes, 1), kAlign));
  return {data, [kAlign](std::byte* p) { ::operator delete[](p, kAlign); }};
}

}  // namespace ringcomm
