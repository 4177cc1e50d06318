// Implements nccl_comm.hpp: queues the operations of a communicator, and computes the collectives.
#include "nccl_comm.hpp"

#include <chrono>
#include <cstring>
#include <thread>

#include "nccl_reduce.hpp"
#include "standin.h"

namespace standin {
namespace {

using Bytes = std::vector<std::byte>;

thread_local std::string error_text;

struct Queued {
  std::shared_ptr<Comm> comm;
  bool fails;
  Work work;
};

void run(void* data) {
  const std::unique_ptr<Queued> queued(static_cast<Queued*>(data));
  Comm& comm = *queued->comm;
  if (queued->fails) comm.error = ncclRemoteError;
  while (queued->fails && comm.keep_on()) {
    std::this_thread::sleep_for(std::chrono::microseconds(30));
  }
  if (comm.keep_on()) queued->work(comm);
  ++comm.done;
}

std::byte* reach(const void* address, std::size_t nbytes) {
  return static_cast<std::byte*>(standin_reach(address, nbytes, "an NCCL operation"));
}

// Returns this rank's contribution in the form that it sends.
Bytes contribution(const void* send, std::size_t count, Reduction how) {
  const std::byte* const from = reach(send, count * size_of(how.type));
  Bytes own(from, from + count * size_of(how.type));
  if (how.op >= ncclNumOps) scale(how.type, own.data(), count, how.factor);
  return own;
}

// Reduces `block` over all ranks in rank order; each rank sends its contribution to this rank.
bool reduce_here(Comm& comm, std::vector<Transfer> transfers, const std::byte* block, void* receive, std::size_t count,
                 Reduction how) {
  const std::size_t nbytes = count * size_of(how.type);
  std::vector<Bytes> parts(static_cast<std::size_t>(comm.size));
  for (int rank = 0; rank < comm.size; ++rank) {
    Bytes& part = parts[static_cast<std::size_t>(rank)];
    part.resize(nbytes);
    if (rank == comm.rank) std::memcpy(part.data(), block, nbytes);
    if (rank != comm.rank) transfers.push_back({false, rank, part.data(), nbytes});
  }
  if (!comm.exchange(std::move(transfers))) return false;
  for (std::size_t rank = 1; rank < parts.size(); ++rank) {
    reduce(how.type, how.op, parts[0].data(), parts[rank].data(), count);
  }
  if (how.op == ncclAvg) scale(how.type, parts[0].data(), count, 1.0 / comm.size);
  std::memcpy(reach(receive, nbytes), parts[0].data(), nbytes);
  return true;
}

}  // namespace

ncclResult_t fail(ncclResult_t result, const std::string& text) {
  error_text = text;
  return result;
}

const char* last_error() { return error_text.c_str(); }

Comm::~Comm() { standin_forget(last); }

bool Comm::keep_on() {
  if (++looked % 256 == 0 && room.lost_a_peer()) error = ncclRemoteError;
  return !aborted && standin_stopping() == 0;
}

bool Comm::exchange(std::vector<Transfer> transfers) {
  return room.exchange(std::move(transfers), [this] { return keep_on(); });
}

ncclResult_t enqueue(const std::shared_ptr<Comm>& comm, CUstream stream, Work work) {
  const bool fails = standin_takes_fault("nccl_peer") != 0;
  auto* const queued = new Queued{comm, fails, std::move(work)};
  const int result = standin_enqueue(stream, run, queued, &comm->last);
  if (result == CUDA_SUCCESS) {
    ++comm->issued;
    return ncclSuccess;
  }
  delete queued;
  return fail(ncclUnhandledCudaError, "CUDA error " + std::to_string(result));
}

void reduce_all(Comm& comm, const void* send, void* receive, std::size_t count, Reduction how) {
  Bytes own = contribution(send, count, how);
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < comm.size; ++rank) {
    if (rank != comm.rank) transfers.push_back({true, rank, own.data(), own.size()});
  }
  reduce_here(comm, std::move(transfers), own.data(), receive, count, how);
}

void reduce_to(Comm& comm, int root, const void* send, void* receive, std::size_t count, Reduction how) {
  Bytes own = contribution(send, count, how);
  if (comm.rank == root) {
    reduce_here(comm, {}, own.data(), receive, count, how);
  } else {
    comm.exchange({{true, root, own.data(), own.size()}});
  }
}

void reduce_scatter(Comm& comm, const void* send, void* receive, std::size_t count, Reduction how) {
  const std::size_t nbytes = count * size_of(how.type);
  Bytes own = contribution(send, count * static_cast<std::size_t>(comm.size), how);
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < comm.size; ++rank) {
    std::byte* const block = own.data() + static_cast<std::size_t>(rank) * nbytes;
    if (rank != comm.rank) transfers.push_back({true, rank, block, nbytes});
  }
  const std::byte* const block = own.data() + static_cast<std::size_t>(comm.rank) * nbytes;
  reduce_here(comm, std::move(transfers), block, receive, count, how);
}

void gather_all(Comm& comm, const void* send, void* receive, std::size_t nbytes) {
  std::byte* const in = reach(send, nbytes);
  std::byte* const out = reach(receive, nbytes * static_cast<std::size_t>(comm.size));
  std::memmove(out + static_cast<std::size_t>(comm.rank) * nbytes, in, nbytes);
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < comm.size; ++rank) {
    if (rank == comm.rank) continue;
    transfers.push_back({true, rank, out + static_cast<std::size_t>(comm.rank) * nbytes, nbytes});
    transfers.push_back({false, rank, out + static_cast<std::size_t>(rank) * nbytes, nbytes});
  }
  comm.exchange(std::move(transfers));
}

void broadcast(Comm& comm, int root, const void* send, void* receive, std::size_t nbytes) {
  std::byte* const out = reach(receive, nbytes);
  if (comm.rank != root) {
    comm.exchange({{false, root, out, nbytes}});
    return;
  }
  std::memmove(out, reach(send, nbytes), nbytes);
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < comm.size; ++rank) {
    if (rank != root) transfers.push_back({true, rank, out, nbytes});
  }
  comm.exchange(std::move(transfers));
}

}  // namespace standin
