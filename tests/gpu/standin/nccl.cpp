// Implements a stand-in for NCCL, for tests only: its functions, over the stand-in for the CUDA
// driver.
#include <sys/random.h>

#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <thread>

#include "nccl_comm.hpp"
#include "nccl_reduce.hpp"
#include "standin.h"

using namespace standin;

namespace {

struct PointToPoint {
  std::shared_ptr<Comm> comm;
  CUstream stream;
  bool sends;
  int peer;
  const void* address;
  std::size_t nbytes;
};

// Calls between ncclGroupStart and ncclGroupEnd; ncclGroupEnd queues collectives in the order of
// the calls.
thread_local int group_depth = 0;
thread_local std::vector<std::function<ncclResult_t()>> group;
thread_local std::vector<PointToPoint> group_messages;

std::mutex comms_mutex;

std::map<ncclComm_t, std::shared_ptr<Comm>>& comms() {
  static auto* const all = new std::map<ncclComm_t, std::shared_ptr<Comm>>;
  return *all;
}

std::shared_ptr<Comm> find(ncclComm_t comm) {
  const std::lock_guard lock(comms_mutex);
  const auto found = comms().find(comm);
  return found == comms().end() ? nullptr : found->second;
}

std::shared_ptr<Comm> take(ncclComm_t comm) {
  const std::lock_guard lock(comms_mutex);
  const auto found = comms().find(comm);
  if (found == comms().end()) return nullptr;
  auto taken = found->second;
  comms().erase(found);
  return taken;
}

bool valid(const Comm& comm, ncclDataType_t type, ncclRedOp_t op) {
  const auto factor = static_cast<std::size_t>(op - ncclNumOps);
  return type >= 0 && type < ncclNumTypes && op >= 0 &&
         (op < ncclNumOps || (factor < comm.factors.size() && !std::isnan(comm.factors[factor])));
}

Reduction reduction(const Comm& comm, ncclDataType_t type, ncclRedOp_t op) {
  return {type, op, op < ncclNumOps ? 1.0 : comm.factors[static_cast<std::size_t>(op - ncclNumOps)]};
}

// Returns whether all of the range is live device memory; NCCL does not accept host memory.
bool on_device(const void* address, std::size_t nbytes) {
  if (nbytes == 0) return true;
  standin_reach(address, nbytes, "an argument of NCCL");
  return standin_host(address) != nullptr;
}

ncclResult_t collective(ncclComm_t comm, CUstream stream, const void* send, std::size_t sent, const void* receive,
                        std::size_t received, Work work) {
  const auto found = find(comm);
  if (found == nullptr) return fail(ncclInvalidArgument, "not a communicator");
  if (!on_device(send, sent) || !on_device(receive, received)) {
    return fail(ncclInvalidArgument, "a buffer is not memory of a device");
  }
  if (found->error != ncclSuccess) return fail(found->error, "an earlier operation failed");
  if (group_depth == 0) return enqueue(found, stream, std::move(work));
  group.push_back([found, stream, work = std::move(work)] { return enqueue(found, stream, work); });
  return ncclSuccess;
}

ncclResult_t send_messages() {
  std::map<std::shared_ptr<Comm>, std::vector<PointToPoint>> of_comm;
  for (auto& message : group_messages) of_comm[message.comm].push_back(message);
  group_messages.clear();
  for (auto& [comm, messages] : of_comm) {
    for (const auto& message : messages) {
      if (message.stream != messages.front().stream) {
        return fail(ncclInvalidUsage, "the stand-in wants one stream for the messages of a group");
      }
    }
    const ncclResult_t result = enqueue(comm, messages.front().stream, [messages](Comm& here) {
      std::vector<Transfer> transfers;
      for (const auto& message : messages) {
        auto* const bytes =
            static_cast<std::byte*>(standin_reach(message.address, message.nbytes, "a message of NCCL"));
        transfers.push_back({message.sends, message.peer, bytes, message.nbytes});
      }
      here.exchange(std::move(transfers));
    });
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

ncclResult_t message(bool sends, const void* address, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                     CUstream stream) {
  const auto found = find(comm);
  if (found == nullptr || peer < 0 || peer >= found->size || type < 0 || type >= ncclNumTypes) {
    return fail(ncclInvalidArgument, "a communicator, peer or data type is wrong");
  }
  const std::size_t nbytes = count * size_of(type);
  if (!on_device(address, nbytes)) return fail(ncclInvalidArgument, "a buffer is not memory of a device");
  if (found->error != ncclSuccess) return fail(found->error, "an earlier operation failed");
  group_messages.push_back({found, stream, sends, peer, address, nbytes});
  return group_depth == 0 ? send_messages() : ncclSuccess;
}

}  // namespace

STANDIN_API ncclResult_t ncclGetVersion(int* version) {
  *version = 22105;
  return ncclSuccess;
}

STANDIN_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return ::getrandom(id->internal, sizeof id->internal, 0) == sizeof id->internal ? ncclSuccess : ncclSystemError;
}

STANDIN_API const char* ncclGetErrorString(ncclResult_t result) {
  static constexpr const char* kTexts[] = {"no error",
                                           "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                           "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                           "internal error - please report this issue to the NCCL developers",
                                           "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                           "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                           "remote process exited or there was a network error",
                                           "NCCL operation in progress"};
  return result >= 0 && result <= ncclInProgress ? kTexts[result] : "unknown result code";
}

STANDIN_API const char* ncclGetLastError(ncclComm_t) { return last_error(); }

STANDIN_API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  if (comm == nullptr || size < 1 || size > 64 || rank < 0 || rank >= size) {
    return fail(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size));
  }
  if (group_depth > 0) return fail(ncclInvalidUsage, "the stand-in makes no communicators in groups");
  char uuid[16];
  if (standin_device_uuid(uuid) != CUDA_SUCCESS) return fail(ncclUnhandledCudaError, "no current context");
  try {
    auto made = std::make_shared<Comm>(id, rank, size);
    made->room.join(uuid, [](const std::string& text) { fail(ncclInvalidUsage, text); });
    *comm = reinterpret_cast<ncclComm_t>(made.get());
    const std::lock_guard lock(comms_mutex);
    comms()[*comm] = std::move(made);
    return ncclSuccess;
  } catch (ncclResult_t result) {
    return result;
  }
}

STANDIN_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const auto taken = take(comm);
  if (taken == nullptr) return fail(ncclInvalidArgument, "not a communicator");
  while (taken->done < taken->issued && standin_stuck() == CUDA_SUCCESS && standin_stopping() == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return ncclSuccess;
}

STANDIN_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const auto taken = take(comm);
  if (taken == nullptr) return fail(ncclInvalidArgument, "not a communicator");
  taken->aborted = true;
  return ncclSuccess;
}

STANDIN_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const auto found = find(comm);
  if (found == nullptr) return fail(ncclInvalidArgument, "not a communicator");
  *error = found->error;
  return ncclSuccess;
}

STANDIN_API ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  const auto found = find(comm);
  if (found == nullptr) return fail(ncclInvalidArgument, "not a communicator");
  *count = found->size;
  return ncclSuccess;
}

STANDIN_API ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  const auto found = find(comm);
  if (found == nullptr) return fail(ncclInvalidArgument, "not a communicator");
  *rank = found->rank;
  return ncclSuccess;
}

STANDIN_API ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

STANDIN_API ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
  if (--group_depth > 0) return ncclSuccess;
  const auto calls = std::move(group);
  group.clear();
  for (const auto& call : calls) {
    if (const ncclResult_t result = call(); result != ncclSuccess) return result;
  }
  return send_messages();
}

STANDIN_API ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                       ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  const auto found = find(comm);
  if (found == nullptr || !valid(*found, type, op)) return fail(ncclInvalidArgument, "an argument is wrong");
  const std::size_t nbytes = count * size_of(type);
  const Reduction how = reduction(*found, type, op);
  return collective(comm, stream, send, nbytes, receive, nbytes,
                    [=](Comm& here) { reduce_all(here, send, receive, count, how); });
}

STANDIN_API ncclResult_t ncclReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                    ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream) {
  const auto found = find(comm);
  if (found == nullptr || !valid(*found, type, op) || root < 0 || root >= found->size) {
    return fail(ncclInvalidArgument, "an argument is wrong");
  }
  const std::size_t nbytes = count * size_of(type);
  const Reduction how = reduction(*found, type, op);
  return collective(comm, stream, send, nbytes, receive, found->rank == root ? nbytes : 0,
                    [=](Comm& here) { reduce_to(here, root, send, receive, count, how); });
}

STANDIN_API ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                       int root, ncclComm_t comm, CUstream stream) {
  const auto found = find(comm);
  if (found == nullptr || !valid(*found, type, ncclSum) || root < 0 || root >= found->size) {
    return fail(ncclInvalidArgument, "an argument is wrong");
  }
  const std::size_t nbytes = count * size_of(type);
  return collective(comm, stream, send, found->rank == root ? nbytes : 0, receive, nbytes,
                    [=](Comm& here) { broadcast(here, root, send, receive, nbytes); });
}

STANDIN_API ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                       ncclComm_t comm, CUstream stream) {
  const auto found = find(comm);
  if (found == nullptr || !valid(*found, type, ncclSum)) return fail(ncclInvalidArgument, "an argument is wrong");
  const std::size_t nbytes = count * size_of(type);
  return collective(comm, stream, send, nbytes, receive, nbytes * static_cast<std::size_t>(found->size),
                    [=](Comm& here) { gather_all(here, send, receive, nbytes); });
}

STANDIN_API ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                           ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  const auto found = find(comm);
  if (found == nullptr || !valid(*found, type, op)) return fail(ncclInvalidArgument, "an argument is wrong");
  const std::size_t nbytes = count * size_of(type);
  const Reduction how = reduction(*found, type, op);
  return collective(comm, stream, send, nbytes * static_cast<std::size_t>(found->size), receive, nbytes,
                    [=](Comm& here) { reduce_scatter(here, send, receive, count, how); });
}

STANDIN_API ncclResult_t ncclSend(const void* address, std::size_t count, ncclDataType_t type, int peer,
                                  ncclComm_t comm, CUstream stream) {
  return message(true, address, count, type, peer, comm, stream);
}

STANDIN_API ncclResult_t ncclRecv(void* address, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                  CUstream stream) {
  return message(false, address, count, type, peer, comm, stream);
}

// Creates an operator. Residence 0: the scalar is on the device and is read when an operation runs,
// which the stand-in refuses; 1: on the host.
STANDIN_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type, int residence,
                                                  ncclComm_t comm) {
  const auto found = find(comm);
  if (found == nullptr || type < 0 || type >= ncclNumTypes || residence != 1) {
    return fail(ncclInvalidArgument, "an argument is wrong, or the scalar is on the device");
  }
  *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(found->factors.size()));
  found->factors.push_back(read_scalar(type, scalar));
  return ncclSuccess;
}

STANDIN_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const auto found = find(comm);
  if (found == nullptr || op < ncclNumOps || !valid(*found, ncclInt8, op)) {
    return fail(ncclInvalidArgument, "not an operator of this communicator");
  }
  found->factors[static_cast<std::size_t>(op - ncclNumOps)] = NAN;
  return ncclSuccess;
}
