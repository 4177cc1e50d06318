// The MPI functions that the transport calls, found by name in a library that is loaded already.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "base/error.hpp"

namespace ringcomm::mpi {

// A handle as MPI's functions take it: an integer or a pointer.
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

// The functions we call. MPI_Message is a handle like any other. A status is passed as plain memory: only its size and
// two offsets are known.
template <class Handle>
struct Functions {
  int (*isend)(const void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*irecv)(void*, int, Handle, int, int, Handle, Handle*) = nullptr;
  int (*improbe)(int, int, Handle, int*, Handle*, void*) = nullptr;
  int (*imrecv)(void*, int, Handle, Handle*, Handle*) = nullptr;
  int (*testsome)(int, Handle*, int*, int*, void*) = nullptr;
  int (*test)(Handle*, int*, void*) = nullptr;
  int (*get_count)(const void*, Handle, int*) = nullptr;
  int (*cancel)(Handle*) = nullptr;
  int (*error_string)(int, char*, int*) = nullptr;
  int (*finalized)(int*) = nullptr;

  explicit Functions(void* library) {
    find(library, "MPI_Isend", isend);
    find(library, "MPI_Irecv", irecv);
    find(library, "MPI_Improbe", improbe);
    find(library, "MPI_Imrecv", imrecv);
    find(library, "MPI_Testsome", testsome);
    find(library, "MPI_Test", test);
    find(library, "MPI_Get_count", get_count);
    find(library, "MPI_Cancel", cancel);
    find(library, "MPI_Error_string", error_string);
    find(library, "MPI_Finalized", finalized);
  }

 private:
  template <class Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (!function) throw Error(ErrorKind::invalid, std::string("the MPI library has no ") + name);
  }
};

// Whether Open MPI yields in its progress (mpi_yield_when_idle, or more ranks than cores), which it decides by
// MPI_Init; null elsewhere.
inline const bool* yields_when_idle(void* library) {
  return static_cast<const bool*>(dlsym(library, "opal_progress_yield_when_idle"));
}

}  // namespace ringcomm::mpi
