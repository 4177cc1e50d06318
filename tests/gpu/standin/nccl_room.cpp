// Implements nccl_room.hpp: ranks join, compare their devices, and exchange bytes through rings.
#include "nccl_room.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>
#include <utility>

#include "standin.h"

namespace standin {
namespace {

constexpr std::size_t kHeadRoom = 4096;
constexpr auto kLongestJoin = std::chrono::seconds(60);

bool alive(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() && text[end + 2] != 'Z';
}

}  // namespace

Room::Room(const ncclUniqueId& id, int rank, int size) : rank_(rank), size_(size) {
  static_assert(sizeof(Head) <= kHeadRoom);
  path_ = "/dev/shm/standin_nccl_";
  for (int i = 0; i < 16; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(id.internal[i])));
    path_ += digits;
  }
  nbytes_ = kHeadRoom + static_cast<std::size_t>(size * size) * sizeof(Ring);
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(nbytes_)) != 0) throw ncclSystemError;
  void* const base = ::mmap(nullptr, nbytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (base == MAP_FAILED) throw ncclSystemError;
  head_ = static_cast<Head*>(base);
  rings_ = reinterpret_cast<Ring*>(static_cast<std::byte*>(base) + kHeadRoom);
}

Room::~Room() {
  if (head_ != nullptr) ::munmap(head_, nbytes_);
}

void Room::join(const char* uuid, const std::function<void(const std::string&)>& say) {
  std::memcpy(head_->seats[rank_].uuid, uuid, sizeof head_->seats[rank_].uuid);
  head_->seats[rank_].pid = ::getpid();
  if (++head_->joined == size_) ::unlink(path_.c_str());
  const auto start = std::chrono::steady_clock::now();
  while (head_->joined < size_) {
    if (std::chrono::steady_clock::now() - start > kLongestJoin) {
      ::unlink(path_.c_str());
      say("not all ranks came");
      throw ncclSystemError;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  bool duplicate = false;
  for (int a = 0; a < size_; ++a) {
    for (int b = 0; b < a; ++b) {
      if (std::memcmp(head_->seats[a].uuid, head_->seats[b].uuid, sizeof head_->seats[a].uuid) != 0) continue;
      duplicate = true;
      if (a != rank_ && b != rank_) continue;
      say("Duplicate GPU detected : rank " + std::to_string(rank_) + " and rank " + std::to_string(a + b - rank_) +
          " both on one CUDA device");
      throw ncclInvalidUsage;
    }
  }
  if (duplicate) throw ncclRemoteError;  // the ranks that share a device have left
}

bool Room::lost_a_peer() const {
  return std::any_of(head_->seats, head_->seats + size_, [](const Seat& seat) { return !alive(seat.pid); });
}

bool Room::move(Transfer& transfer) {
  Ring& ring = transfer.sends ? this->ring(rank_, transfer.peer) : this->ring(transfer.peer, rank_);
  const std::uint64_t written = ring.written.load(), read = ring.read.load();
  const std::uint64_t at = (transfer.sends ? written : read) % kRing;
  const std::size_t possible = transfer.sends ? kRing - (written - read) : written - read;
  const std::size_t count = std::min({possible, kRing - at, transfer.left});
  if (count == 0) return false;
  if (transfer.sends) {
    std::memcpy(ring.bytes + at, transfer.bytes, count);
    ring.written += count;
  } else {
    std::memcpy(transfer.bytes, ring.bytes + at, count);
    ring.read += count;
  }
  transfer.bytes += count;
  transfer.left -= count;
  return true;
}

bool Room::exchange(std::vector<Transfer> transfers, const std::function<bool()>& keep_on) {
  for (int idle = 0;;) {
    bool moved = false, complete = true;
    std::set<std::pair<int, bool>> busy;  // a ring holds the bytes of one transfer at a time
    for (Transfer& transfer : transfers) {
      if (transfer.left == 0 || busy.contains({transfer.peer, transfer.sends})) continue;
      moved = move(transfer) || moved;
      if (transfer.left == 0) continue;
      busy.insert({transfer.peer, transfer.sends});
      complete = false;
    }
    if (complete) return true;
    idle = moved ? 0 : idle + 1;
    if (idle > 0 && !keep_on()) return false;
    if (idle > 20) std::this_thread::sleep_for(std::chrono::microseconds(30));
  }
}

}  // namespace standin
