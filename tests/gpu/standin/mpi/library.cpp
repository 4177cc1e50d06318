// An MPI that takes addresses of the stand-in's devices: what lies before the real library, under its name, and has it
// do everything else. Handles are integers in some libraries and pointers in others, and are handed on as they come.
//
// STANDIN_MPI, read once:
//   aware    (when unset) messages go to and from device memory, which must be alive
//   unaware  MPI says that it takes none; to be given one ends the process
//   lies     MPI says that it takes device memory, and loses what it is given
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "standin.h"

using Handle = std::intptr_t;

extern "C" {
int PMPI_Isend(const void*, int, Handle, int, int, Handle, void*);
int PMPI_Irecv(void*, int, Handle, int, int, Handle, void*);
}

namespace {

std::string_view kind() {
  static const char* const set = std::getenv("STANDIN_MPI");
  return set ? set : "aware";
}

// Where MPI itself finds the bytes of a buffer of so many.
void* place_of(const void* data, int nbytes, const char* who) {
  const auto size = static_cast<std::size_t>(nbytes);
  void* const host = standin_reach(data, size, who);
  if (host == data) return host;
  if (kind() == "unaware") {
    std::fprintf(stderr, "stand-in: VIOLATION: %s of an MPI that takes no device memory is given some\n", who);
    std::abort();
  }
  static std::byte* const nowhere = static_cast<std::byte*>(std::calloc(std::size_t{1} << 20, 1));
  return kind() == "lies" ? nowhere : host;
}

}  // namespace

#define STANDIN_API extern "C" __attribute__((visibility("default")))

STANDIN_API int MPI_Isend(const void* data, int count, Handle type, int peer, int tag, Handle comm, void* request) {
  return PMPI_Isend(place_of(data, count, __func__), count, type, peer, tag, comm, request);
}

STANDIN_API int MPI_Irecv(void* data, int count, Handle type, int peer, int tag, Handle comm, void* request) {
  return PMPI_Irecv(place_of(data, count, __func__), count, type, peer, tag, comm, request);
}

STANDIN_API int MPIX_Query_cuda_support() { return kind() != "unaware"; }
