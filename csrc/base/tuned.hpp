// Holds sizes that were found by measurement and that several files share.
#pragma once

#include <cstddef>

namespace ringcomm {

// Default sizes in bytes: of a schedule's segment, and of its blocks if there are many. Blocks of
// 60 KB are large enough for most networks. Longer messages may be slower: over TCP, Open MPI sends
// up to 64 KB eagerly, but a longer message needs a handshake, which waits in the link's queue
// behind data.
inline constexpr std::size_t kMessageSegment = 240 << 10, kMessageBlock = 60 << 10;

// Bytes of each rank's array that a pass in shared memory works on at a time. They fit into caches,
// and a worker soon returns to its other operations.
inline constexpr std::size_t kMemorySegment = 256 << 10;

}  // namespace ringcomm
