// Computes a 64-bit digest of bytes, at memory speed. Ranks compare digests of large arrays instead
// of the arrays. It finds accidental differences; it does not protect against forged ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringcomm::kernels {

// Returns the digest. Equal bytes have equal digests, for any alignment and on every machine of one
// byte order. Different bytes, also of different lengths, have equal digests with a probability of
// about 2⁻⁶⁴.
std::uint64_t digest(const void* data, std::size_t nbytes);

}  // namespace ringcomm::kernels
