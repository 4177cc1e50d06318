// Provides posix_memalign and free for a library that has no hook for allocators. Large blocks of
// registered sizes are allocated in this rank's arena, all other blocks by the C library.
//
// The functions have no argument that names a pool, so they try all pools that serve this size. The
// state here outlives the creators of pools: a block may be freed long after its job has ended, in
// any thread, during process exit, or in a forked child.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "shm/block_pool.hpp"

namespace ringcomm {

// Redirects the library's calls to served_memalign() and served_free(), until the process ends,
// because memory from here must be freed here. imports() defines how a library is named. Returns
// false if the library does not import both functions, or if the system refuses.
bool serve_library(std::string_view library);

// Adds a pool: blocks are allocated from it from now on.
void serve_from(std::shared_ptr<BlockPool> pool);
void serve_no_more_from(const BlockPool& pool);  // the pool lives until all its blocks are freed

int served_memalign(void** block, std::size_t alignment, std::size_t nbytes);  // same interface as posix_memalign
void served_free(void* block);                                                 // same interface as free

}  // namespace ringcomm
