// Defines the shared memory of an NCCL communicator's ranks: a file named by the unique id, with a
// ring for each pair of ranks, through which they exchange bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nccl_abi.h"

namespace standin {

constexpr std::size_t kRing = std::size_t{1} << 18;

struct Ring {
  std::atomic<std::uint64_t> written, read;
  std::byte bytes[kRing];
};

struct Transfer {
  bool sends = false;
  int peer = 0;
  std::byte* bytes = nullptr;
  std::size_t left = 0;
};

class Room {
 public:
  Room(const ncclUniqueId& id, int rank, int size);
  ~Room();

  // Waits for all ranks and compares their devices. On an error, passes the reason to `say` and
  // throws the result code.
  void join(const char* uuid, const std::function<void(const std::string&)>& say);
  // Transfers until all transfers are complete, or `keep_on` returns false.
  bool exchange(std::vector<Transfer> transfers, const std::function<bool()>& keep_on);
  bool lost_a_peer() const;

 private:
  struct Seat {
    char uuid[16];
    std::int32_t pid;
  };
  struct Head {
    std::atomic<int> joined;
    Seat seats[64];
  };
  bool move(Transfer& transfer);
  Ring& ring(int from, int to) const { return rings_[from * size_ + to]; }

  int rank_, size_;
  std::string path_;
  std::size_t nbytes_ = 0;
  Head* head_ = nullptr;
  Ring* rings_ = nullptr;
};

}  // namespace standin
