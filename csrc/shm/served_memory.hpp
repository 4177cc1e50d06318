// posix_memalign and free for a library that we cannot ask to allocate elsewhere: big blocks of the sizes that are
// wanted come from this rank's arena, all others from the C library.
//
// The functions have no argument that could say which pool, so all that serve are asked, by size. It is the one thing
// here that outlives its makers. A block may come back at any time, long after its job has ended, in any thread, while
// the process ends, or in a forked child.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "shm/block_pool.hpp"

namespace ringcomm {

// Makes the library (imports() tells how it is named) ask us. Once, for the life of the process: memory that we gave
// must come back to us. False: there is nothing to redirect, or the system refuses.
bool serve_library(std::string_view library);

// From now on blocks come from this pool too.
void serve_from(std::shared_ptr<BlockPool> pool);
void serve_no_more_from(const BlockPool& pool);  // it lives until it has all its blocks back

int served_memalign(void** block, std::size_t alignment, std::size_t nbytes);  // as posix_memalign
void served_free(void* block);                                                 // as free

}  // namespace ringcomm
