// Defines the stand-in's memory: device allocations, peers' allocations opened here, and
// page-locked host memory.
//
// A process has one memfd, mapped twice. Callers get addresses in the mapping without access; the
// stand-in uses the other, where only live allocations are accessible. The memfd begins with a
// table that peers read: a generation for each allocation, so that they notice a free, and the
// interprocess events.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "cuda_abi.h"
#include "stream.hpp"

namespace standin {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAllocationSlots = 1 << 16, kEventSlots = 1 << 14;

struct Shared {  // the head of a memfd
  std::atomic<std::uint64_t> owner;
  std::atomic<std::uint32_t> generations[kAllocationSlots];  // odd: alive
  EventSlot events[kEventSlots];
};

enum class Kind { device, opened, registered, pinned };

struct Range {
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  Kind kind = Kind::device;
  int device = 0;
  std::byte* host = nullptr;  // the address at which the stand-in itself accesses it
  std::uint64_t id = 0;
  std::size_t offset = 0;  // within its memfd
  std::uint32_t slot = 0, generation = 0;
  const Shared* owner = nullptr;
  int references = 1;  // references to an opened allocation

  std::uintptr_t end() const { return begin + size; }
  bool on_device() const { return kind == Kind::device || kind == Kind::opened; }
};

struct Ticket {  // the content of both kinds of handle, at most 64 bytes
  std::uint64_t magic, owner, offset, size;
  std::int32_t pid, fd;
  std::uint32_t slot, generation;
  std::int32_t device, unused;
};
static_assert(sizeof(Ticket) <= sizeof(CUipcMemHandle));
constexpr std::uint64_t kMemoryTicket = 0x7374616e64696e6d, kEventTicket = 0x7374616e64696e65;

class Memory {
 public:
  static Memory& get();
  CUresult start();

  CUresult allocate(int device, std::size_t size, CUdeviceptr* address);
  CUresult release(CUdeviceptr address);  // `address` is the start of an allocation
  std::size_t in_use(int device);
  CUresult lock_host(void* begin, std::size_t size, Kind kind, int device);
  CUresult unlock_host(void* begin, Kind kind);

  std::optional<Range> find(std::uintptr_t address);                         // the live range that contains it
  bool is_device_address(std::uintptr_t address);                            // alive or not
  std::byte* reach(const void* address, std::size_t size, const char* who);  // violation if not all of it is alive
  // aborts if bytes after an allocation were written
  void check();
  long count(Kind kind);

  CUresult ticket(std::uintptr_t address, Ticket* ticket);
  CUresult event_ticket(const EventSlot* slot, Ticket* ticket);
  CUresult open(const Ticket& ticket, CUdeviceptr* address);
  CUresult close(CUdeviceptr address);
  CUresult open_event(const Ticket& ticket, EventSlot** slot);
  EventSlot* new_event();  // null: none is free
  void free_event(EventSlot* slot);
  bool own(const Ticket& ticket) const { return ticket.owner == owner_; }

 private:
  struct Peer {
    int fd = -1;
    Shared* shared = nullptr;
  };
  std::uintptr_t place(std::size_t room);
  void require_intact(const Range& range) const;
  CUresult peer(const Ticket& ticket, Peer* peer);
  [[noreturn]] void refuse(const void* address, std::size_t size, const char* who);

  std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;
  std::map<std::uintptr_t, std::size_t> freed_;  // for messages
  std::map<std::uint64_t, Peer> peers_;
  std::vector<std::size_t> in_use_;
  std::deque<EventSlot*> free_events_;  // reused only if no fresh one is left
  int fd_ = -1;
  std::uint64_t owner_ = 0;
  std::byte *device_base_ = nullptr, *host_base_ = nullptr;
  Shared* shared_ = nullptr;
  std::uintptr_t cursor_ = 0;
  std::uint64_t next_id_ = 1;
  std::uint32_t next_slot_ = 0, next_event_ = 0;
};

}  // namespace standin
