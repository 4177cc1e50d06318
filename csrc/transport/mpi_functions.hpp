// Holds the MPI functions that the transport calls, found by name in the loaded library.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <type_traits>

#include "base/error.hpp"

namespace ringcomm::mpi {

// Converts a number to a handle as MPI's functions take it: an integer or a pointer.
template <class Handle>
Handle handle_from(std::uint64_t bits) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(bits));
  } else {
    return static_cast<Handle>(static_cast<std::uint32_t>(bits));
  }
}

template <class Handle>
std::uint64_t bits_of(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<std::uintptr_t>(handle);
  } else {
    return static_cast<std::uint32_t>(handle);
  }
}

// The MPI functions that are called. MPI_Message is a handle like MPI_Request. A status is passed
// as raw memory: only its size and two offsets are known.
template <class Handle>
struct Functions {
  explicit Functions(void* mpi) : library(mpi) {}
  void* const library;
  int (*const isend)(const void*, int, Handle, int, int, Handle, Handle*) = find("MPI_Isend");
  int (*const irecv)(void*, int, Handle, int, int, Handle, Handle*) = find("MPI_Irecv");
  int (*const improbe)(int, int, Handle, int*, Handle*, void*) = find("MPI_Improbe");
  int (*const imrecv)(void*, int, Handle, Handle*, Handle*) = find("MPI_Imrecv");
  int (*const testsome)(int, Handle*, int*, int*, void*) = find("MPI_Testsome");
  int (*const test)(Handle*, int*, void*) = find("MPI_Test");
  int (*const get_count)(const void*, Handle, int*) = find("MPI_Get_count");
  int (*const cancel)(Handle*) = find("MPI_Cancel");
  int (*const test_cancelled)(const void*, int*) = find("MPI_Test_cancelled");
  int (*const error_string)(int, char*, int*) = find("MPI_Error_string");
  int (*const finalized)(int*) = find("MPI_Finalized");

 private:
  struct Address {
    void* at;
    template <class Function>
    operator Function*() const {  // NOLINT: converts to the type of the field
      return reinterpret_cast<Function*>(at);
    }
  };
  Address find(const char* name) const {
    void* const found = dlsym(library, name);
    if (!found) throw invalid("the MPI library has no ", name);
    return {found};
  }
};

// Returns the address of a flag that MPI_Init of Open MPI sets: its progress loop yields, because
// of mpi_yield_when_idle or because there are more ranks than cores. Null for other MPI libraries.
inline const bool* yields_when_idle(void* library) {
  return static_cast<const bool*>(dlsym(library, "opal_progress_yield_when_idle"));
}

// Returns whether MPI reports that it accepts addresses of CUDA devices. Open MPI, MVAPICH and
// newer MPICH have the first function, older MPICH only the second. A library with neither function
// accepts no device address.
inline bool takes_device_memory(void* library) {
  constexpr int kCuda = 0;  // MPIX_GPU_SUPPORT_CUDA
  const auto supports = reinterpret_cast<int (*)()>(dlsym(library, "MPIX_Query_cuda_support"));
  if (supports && supports() == 1) return true;
  const auto query = reinterpret_cast<int (*)(int, int*)>(dlsym(library, "MPIX_GPU_query_support"));
  int supported = 0;
  return query && query(kCuda, &supported) == 0 && supported != 0;
}

}  // namespace ringcomm::mpi
