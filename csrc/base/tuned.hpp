// Holds sizes that were found by measurement and that several files share.
#pragma once

#include <cstddef>

namespace ringcomm {

// Default bytes of a schedule's segment: blocks of 60 KB for four ranks. Such blocks are large
// enough for messages of most networks. Open MPI sends up to 64 KB eagerly over TCP, while the
// handshake of longer messages waits in the link's queue behind the data.
inline constexpr std::size_t kMessageSegment = 240 << 10, kMessageBlock = 60 << 10;

// Bytes of every rank's array that are worked on together in shared memory. They fit into caches,
// and a worker soon returns to its other operations.
inline constexpr std::size_t kMemorySegment = 256 << 10;

}  // namespace ringcomm
