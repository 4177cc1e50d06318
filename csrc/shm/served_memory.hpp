// Provides posix_memalign and free for a library that has no hook for allocators. Large blocks of
// registered sizes come from this rank's arena, all other blocks from the C library.
//
// The functions have no argument that names a pool, so all pools that serve are tried, by size.
// This state outlives its creators. A block may be freed long after its job has ended: in any
// thread, during process exit, or in a forked child.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "shm/block_pool.hpp"

namespace ringcomm {

// Redirects the library's calls to these functions; imports() defines how a library is named. It
// lasts for the life of the process, because memory from here must be freed here. Returns false if
// the library imports no such function, or if the system refuses.
bool serve_library(std::string_view library);

// Adds a pool: blocks are allocated from it from now on.
void serve_from(std::shared_ptr<BlockPool> pool);
void serve_no_more_from(const BlockPool& pool);  // the pool lives until all its blocks are freed

int served_memalign(void** block, std::size_t alignment, std::size_t nbytes);  // same interface as posix_memalign
void served_free(void* block);                                                 // same interface as free

}  // namespace ringcomm
