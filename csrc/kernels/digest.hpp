// A 64-bit digest of bytes, at the speed of reading them: ranks compare digests of large arrays instead of the arrays.
// It finds accidental differences; it is no protection against made-up ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringcomm::kernels {

// Equal bytes have equal digests, whatever their alignment and on every machine of one byte order. Different ones, also
// of different lengths, have equal digests with a probability of about 2⁻⁶⁴.
std::uint64_t digest(const void* data, std::size_t nbytes);

}  // namespace ringcomm::kernels
