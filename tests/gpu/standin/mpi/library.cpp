// Implements an MPI that accepts addresses of the stand-in's devices. It is loaded before the real
// library, under its name, and forwards all calls to it. Handles are integers in some libraries and
// pointers in others, and are forwarded unchanged.
//
// Messages are sent from and received into device memory, which must be alive. With
// ``STANDIN_MPI=lies``, their data is lost.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "standin.h"

using Handle = std::intptr_t;

extern "C" {
int PMPI_Isend(const void*, int, Handle, int, int, Handle, void*);
int PMPI_Irecv(void*, int, Handle, int, int, Handle, void*);
}

namespace {

// Returns the address at which MPI itself finds the bytes of a buffer of `nbytes` bytes.
void* place_of(const void* data, int nbytes, const char* who) {
  static const char* const kind = std::getenv("STANDIN_MPI");
  static void* const nowhere = std::calloc(std::size_t{1} << 20, 1);
  void* const host = standin_reach(data, static_cast<std::size_t>(nbytes), who);
  return host != data && kind && std::string_view(kind) == "lies" ? nowhere : host;
}

}  // namespace

#define STANDIN_API extern "C" __attribute__((visibility("default")))

STANDIN_API int MPI_Isend(const void* data, int count, Handle type, int peer, int tag, Handle comm, void* request) {
  return PMPI_Isend(place_of(data, count, __func__), count, type, peer, tag, comm, request);
}

STANDIN_API int MPI_Irecv(void* data, int count, Handle type, int peer, int tag, Handle comm, void* request) {
  return PMPI_Irecv(place_of(data, count, __func__), count, type, peer, tag, comm, request);
}

STANDIN_API int MPIX_Query_cuda_support() { return 1; }
