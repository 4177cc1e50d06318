// Implements the part of Memory for other processes: they open the memfd through /proc, as the same
// user may.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "memory.hpp"
#include "settings.hpp"

namespace standin {

CUresult Memory::ticket(std::uintptr_t address, Ticket* ticket) {
  const auto range = find(address);
  if (!range || range->kind != Kind::device) return CUDA_ERROR_INVALID_VALUE;
  *ticket = {kMemoryTicket, owner_,      range->offset,     range->size,   ::getpid(),
             fd_,           range->slot, range->generation, range->device, 0};
  return CUDA_SUCCESS;
}

CUresult Memory::event_ticket(const EventSlot* slot, Ticket* ticket) {
  *ticket = {kEventTicket, owner_, 0, 0, ::getpid(), fd_, static_cast<std::uint32_t>(slot - shared_->events), 0, 0, 0};
  return CUDA_SUCCESS;
}

CUresult Memory::peer(const Ticket& ticket, Peer* peer) {
  if (const auto found = peers_.find(ticket.owner); found != peers_.end()) {
    *peer = found->second;
    return CUDA_SUCCESS;
  }
  const std::string path = "/proc/" + std::to_string(ticket.pid) + "/fd/" + std::to_string(ticket.fd);
  peer->fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (peer->fd < 0) return CUDA_ERROR_INVALID_VALUE;
  void* const head = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, peer->fd, 0);
  peer->shared = static_cast<Shared*>(head);
  if (head == MAP_FAILED || peer->shared->owner != ticket.owner) {  // another process has this number now
    ::close(peer->fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  peers_[ticket.owner] = *peer;
  return CUDA_SUCCESS;
}

CUresult Memory::open(const Ticket& ticket, CUdeviceptr* address) {
  if (ticket.magic != kMemoryTicket) return CUDA_ERROR_INVALID_VALUE;
  if (own(ticket)) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(mutex_);
  Peer peer;
  if (const CUresult error = this->peer(ticket, &peer); error != CUDA_SUCCESS) return error;
  if (peer.shared->generations[ticket.slot] != ticket.generation) return CUDA_ERROR_INVALID_HANDLE;
  for (auto& [begin, range] : ranges_) {
    if (range.owner != peer.shared || range.slot != ticket.slot || range.generation != ticket.generation) continue;
    ++range.references;
    *address = begin;
    return CUDA_SUCCESS;
  }
  const std::size_t room = (ticket.size + kPage - 1) / kPage * kPage;
  void* const device = ::mmap(nullptr, room + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* const host =
      ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_SHARED, peer.fd, static_cast<off_t>(ticket.offset));
  if (device == MAP_FAILED || host == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  const auto begin = reinterpret_cast<std::uintptr_t>(device);
  freed_.erase(begin);
  ranges_[begin] = {.begin = begin,
                    .size = ticket.size,
                    .kind = Kind::opened,
                    .device = ticket.device,
                    .host = static_cast<std::byte*>(host),
                    .id = next_id_++,
                    .offset = ticket.offset,
                    .slot = ticket.slot,
                    .generation = ticket.generation,
                    .owner = peer.shared};
  *address = begin;
  return CUDA_SUCCESS;
}

CUresult Memory::close(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || found->second.kind != Kind::opened) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.references > 0) return CUDA_SUCCESS;
  const std::size_t room = (found->second.size + kPage - 1) / kPage * kPage;
  ::munmap(found->second.host, room);  // callers' addresses stay reserved, so that late uses are detected
  freed_[address] = found->second.size;
  ranges_.erase(found);
  return CUDA_SUCCESS;
}

CUresult Memory::open_event(const Ticket& ticket, EventSlot** slot) {
  if (ticket.magic != kEventTicket) return CUDA_ERROR_INVALID_VALUE;
  if (own(ticket)) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(mutex_);
  Peer peer;
  if (const CUresult error = this->peer(ticket, &peer); error != CUDA_SUCCESS) return error;
  *slot = &peer.shared->events[ticket.slot];
  return CUDA_SUCCESS;
}

EventSlot* Memory::new_event() {
  const std::lock_guard lock(mutex_);
  if (next_event_ < kEventSlots) return &shared_->events[next_event_++];
  if (free_events_.empty()) return nullptr;
  EventSlot* const slot = free_events_.front();
  free_events_.pop_front();
  return slot;
}

void Memory::free_event(EventSlot* slot) {
  const std::lock_guard lock(mutex_);
  free_events_.push_back(slot);
}

}  // namespace standin
