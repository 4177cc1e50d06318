// Creation of the MPI transport for _transport.pxi: finds the MPI library in mpi4py's extension.
#pragma once

#include <dlfcn.h>

#include "transport/mpi.hpp"
#include "transport/threads.hpp"

namespace ringcomm_border {
using namespace ringcomm;
inline std::shared_ptr<Transport> mpi_transport(const std::string& extension, std::uint64_t comm, int rank, int size,
                                                int tag_limit, MpiLibrary library) {
  library.dl_handle = dlopen(extension.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (!library.dl_handle) throw Error(ErrorKind::invalid, "mpi4py's extension " + extension + " is not loaded");
  return make_mpi_transport(library, comm, rank, size, tag_limit);
}
}  // namespace ringcomm_border
