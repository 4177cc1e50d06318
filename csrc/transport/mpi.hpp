// Provides the transport over MPI. It calls a dozen functions of the library that mpi4py has
// loaded, through pointers, and so is built without any MPI.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.hpp"

namespace ringcomm {

// Properties of the loaded MPI, as mpi4py provides them.
struct MpiLibrary {
  void* dl_handle = nullptr;    // dlopen handle of mpi4py's extension; finds the library's symbols
  std::size_t handle_size = 0;  // bytes of MPI_Comm, MPI_Request ...: 4 (MPICH, Intel MPI) or 8 (Open MPI, MPI-5 ABI)
  std::size_t status_size = 0;
  std::uint64_t byte_type = 0;                                    // MPI_BYTE
  std::uint64_t null_request = 0;                                 // MPI_REQUEST_NULL
  std::size_t status_source_offset = 0, status_error_offset = 0;  // offsets of MPI_SOURCE and MPI_ERROR
  int any_source = 0, undefined = 0, success = 0;
};

// `comm` is the handle of a private communicator (a duplicate with MPI_ERRORS_RETURN), which
// outlives the transport.
std::unique_ptr<Transport> make_mpi_transport(const MpiLibrary& library, std::uint64_t comm, int rank, int size,
                                              int tag_limit);

// Returns the number of cancelled messages in this process that MPI may still transfer: their
// memory must not be freed.
std::size_t orphaned_messages();

}  // namespace ringcomm
