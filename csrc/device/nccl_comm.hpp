// Wraps a communicator of NCCL. A separate thread creates and monitors it: creation waits seconds
// for all ranks, and would wait forever for a dead peer.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "base/types.hpp"
#include "device/device.hpp"

namespace ringcomm {

struct NcclId {
  char bytes[128];
};
using NcclHandle = struct ncclComm*;

// Functions as documented in NCCL's user guide.
// clang-format off: one row per function
#define RINGCOMM_NCCL_FUNCTIONS(one) \
  one(version, "ncclGetVersion", (int*)) \
  one(unique_id, "ncclGetUniqueId", (NcclId*)) \
  one(initialise, "ncclCommInitRank", (NcclHandle*, int, NcclId, int)) \
  one(async_error, "ncclCommGetAsyncError", (NcclHandle, int*)) \
  one(abort, "ncclCommAbort", (NcclHandle)) \
  one(group_start, "ncclGroupStart", ()) \
  one(group_end, "ncclGroupEnd", ()) \
  one(allreduce, "ncclAllReduce", (const void*, void*, std::size_t, int, int, NcclHandle, CuStream)) \
  one(reduce, "ncclReduce", (const void*, void*, std::size_t, int, int, int, NcclHandle, CuStream)) \
  one(reducescatter, "ncclReduceScatter", (const void*, void*, std::size_t, int, int, NcclHandle, CuStream)) \
  one(broadcast, "ncclBroadcast", (const void*, void*, std::size_t, int, int, NcclHandle, CuStream)) \
  one(send, "ncclSend", (const void*, std::size_t, int, int, NcclHandle, CuStream)) \
  one(receive, "ncclRecv", (void*, std::size_t, int, int, NcclHandle, CuStream))
// clang-format on

struct Nccl {
  static const Nccl* load(const std::string& library);  // loads once; null: not available
  void check(int result, const char* what) const;       // throws Error(transport)
  const char* (*error_text)(int) = nullptr;
#define RINGCOMM_ONE(name, symbol, parameters) int(*name) parameters = nullptr;
  RINGCOMM_NCCL_FUNCTIONS(RINGCOMM_ONE)
#undef RINGCOMM_ONE
};

class NcclComm {
 public:
  // Starts the creation. `id` is rank 0's.
  NcclComm(const Nccl& nccl, Device& device, const NcclId& id, int size, int rank);
  ~NcclComm();  // aborts the communicator
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  bool made() const;  // throws Error(transport) if the creation failed
  NcclHandle handle() const { return state_->handle; }

 private:
  struct State {  // shared with the thread, which may outlive this object
    std::atomic<NcclHandle> handle{nullptr};
    std::atomic<int> failed{0};
    std::atomic<bool> ending{false};
  };
  static void live(const Nccl& nccl, Device& device, NcclId id, int size, int rank,
                   const std::shared_ptr<State>& state);

  const Nccl& nccl_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ringcomm
