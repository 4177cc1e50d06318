// Numbers that were found by measuring, and that several places share.
#pragma once

#include <cstddef>

namespace ringcomm {

// Bytes of a schedule's segment, if nothing asks for more or less: of four ranks, blocks of 60 KB. That is long enough
// to be worth a message on most networks; and up to 64 KB Open MPI sends at once over TCP, while the handshake of
// longer messages waits in the link's queue behind the data.
inline constexpr std::size_t kMessageSegment = 240 << 10, kMessageBlock = 60 << 10;

// Bytes of every rank's array that go through a host's memory, or are worked on there, at once: they fit into caches,
// and who works on more for a worker has others to serve.
inline constexpr std::size_t kMemorySegment = 256 << 10;

}  // namespace ringcomm
