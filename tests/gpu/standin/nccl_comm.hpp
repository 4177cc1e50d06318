// Defines a communicator: its operations run one after another in the order of the calls, whatever
// their streams.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nccl_abi.h"
#include "nccl_room.hpp"

namespace standin {

struct Comm {
  Comm(const ncclUniqueId& id, int rank, int size) : room(id, rank, size), rank(rank), size(size) {}
  ~Comm();

  bool exchange(std::vector<Transfer> transfers);
  bool keep_on();

  Room room;
  int rank, size;
  std::atomic<bool> aborted{false};
  std::atomic<ncclResult_t> error{ncclSuccess};
  std::uint64_t issued = 0;
  void* last = nullptr;  // for standin_enqueue
  std::atomic<std::uint64_t> done{0};
  std::vector<double> factors;  // factors of ncclRedOpCreatePreMulSum's operators; NaN: destroyed
  int looked = 0;
};

using Work = std::function<void(Comm&)>;

ncclResult_t enqueue(const std::shared_ptr<Comm>& comm, CUstream stream, Work work);
ncclResult_t fail(ncclResult_t result, const std::string& text);  // ncclGetLastError returns the text
const char* last_error();

struct Reduction {
  ncclDataType_t type;
  ncclRedOp_t op;
  double factor;  // factor of ncclRedOpCreatePreMulSum, at the time of the call
};

void reduce_all(Comm& comm, const void* send, void* receive, std::size_t count, Reduction how);
void reduce_to(Comm& comm, int root, const void* send, void* receive, std::size_t count, Reduction how);
void reduce_scatter(Comm& comm, const void* send, void* receive, std::size_t count, Reduction how);
void gather_all(Comm& comm, const void* send, void* receive, std::size_t nbytes);
void broadcast(Comm& comm, int root, const void* send, void* receive, std::size_t nbytes);

}  // namespace standin
