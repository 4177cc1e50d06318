// MPI behind a dozen function pointers, found in the library that mpi4py has loaded. Built without any MPI.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.hpp"

namespace ringcomm {

// What mpi4py knows of the MPI it loaded, as plain numbers.
struct MpiLibrary {
  void* dl_handle = nullptr;    // dlopen of mpi4py's extension: its symbols reach the library
  std::size_t handle_size = 0;  // of MPI_Comm, MPI_Request ...: 4 (MPICH, Intel MPI) or 8 (Open MPI, MPI-5 ABI)
  std::size_t status_size = 0;
  std::uint64_t byte_type = 0;                                    // MPI_BYTE
  std::uint64_t null_request = 0;                                 // MPI_REQUEST_NULL
  std::size_t status_source_offset = 0, status_error_offset = 0;  // of MPI_SOURCE and MPI_ERROR
  int any_source = 0, undefined = 0, success = 0;
};

// `comm` is the handle of a communicator of our own (a dup with errors returned), which outlives the transport.
std::unique_ptr<Transport> make_mpi_transport(const MpiLibrary& library, std::uint64_t comm, int rank, int size,
                                              int tag_limit);

// Messages of this process that were cancelled and that MPI may still be moving: their memory must not be freed.
std::size_t orphaned_messages();

}  // namespace ringcomm
