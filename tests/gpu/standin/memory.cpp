// Implements memory.hpp: allocates, finds, checks and frees ranges of memory.
#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>

#include "settings.hpp"

namespace standin {
namespace {

// bytes of addresses; the system backs them when they are touched
constexpr std::size_t kArena = std::size_t{64} << 30;
constexpr std::size_t kHead = std::size_t{1} << 20;
static_assert(sizeof(Shared) <= kHead);
constexpr auto kFresh = 0xcb, kFence = 0xee;
// first bytes of an allocation, which are initialised to non-zero values
constexpr std::size_t kFilled = std::size_t{1} << 20;

std::size_t pages(std::size_t size) { return (size + kPage - 1) / kPage * kPage; }

void* map(int fd, std::size_t offset, std::size_t size, int access) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED | MAP_NORESERVE;
  void* const base = ::mmap(nullptr, size, access, flags, fd, static_cast<off_t>(offset));
  return base == MAP_FAILED ? nullptr : base;
}

}  // namespace

Memory& Memory::get() {
  static Memory* const memory = new Memory;
  return *memory;
}

CUresult Memory::start() {
  const std::lock_guard lock(mutex_);
  if (fd_ >= 0) return CUDA_SUCCESS;
  in_use_.resize(64);
  fd_ = ::memfd_create("standin", MFD_CLOEXEC);
  if (fd_ < 0 || ::ftruncate(fd_, kArena) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  device_base_ = static_cast<std::byte*>(map(-1, 0, kArena, PROT_NONE));
  host_base_ = static_cast<std::byte*>(map(fd_, 0, kArena, PROT_NONE));
  if (device_base_ == nullptr || host_base_ == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
  ::mprotect(host_base_, kHead, PROT_READ | PROT_WRITE);
  ::madvise(host_base_, kArena, MADV_DONTDUMP);
  shared_ = reinterpret_cast<Shared*>(host_base_);
  if (::getrandom(&owner_, sizeof owner_, 0) != sizeof owner_) owner_ = static_cast<std::uint64_t>(::getpid());
  shared_->owner = owner_;
  cursor_ = reinterpret_cast<std::uintptr_t>(device_base_) + kHead;
  return CUDA_SUCCESS;
}

// Returns addresses for an allocation. Freed addresses are reused only after all fresh ones.
std::uintptr_t Memory::place(std::size_t room) {
  const auto base = reinterpret_cast<std::uintptr_t>(device_base_);
  std::uintptr_t at = cursor_;
  for (int pass = 0; pass < 2; ++pass, at = base + kHead) {
    while (at + room <= base + kArena) {
      auto next = ranges_.upper_bound(at);
      if (next != ranges_.begin() && std::prev(next)->second.end() > at) next = std::prev(next);
      if (next == ranges_.end() || next->first >= at + room) return at;
      at = pages(next->second.end()) + kPage;
    }
  }
  return 0;
}

CUresult Memory::allocate(int device, std::size_t size, CUdeviceptr* address) {
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<std::size_t>(device);
  if (size > Settings::get().memory - std::min(in_use_[index], Settings::get().memory)) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range{.begin = place(pages(size) + kPage), .size = size, .device = device};
  if (range.begin == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  range.offset = range.begin - reinterpret_cast<std::uintptr_t>(device_base_);
  range.host = host_base_ + range.offset;
  if (::mprotect(range.host, pages(size), PROT_READ | PROT_WRITE) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (Settings::get().delay_us > 0) std::memset(range.host, kFresh, std::min(size, kFilled));
  std::memset(range.host + size, kFence, pages(size) - size);
  while (shared_->generations[next_slot_ % kAllocationSlots] % 2 == 1) ++next_slot_;
  range.slot = next_slot_++ % kAllocationSlots;
  range.generation = ++shared_->generations[range.slot];
  range.owner = shared_;
  range.id = next_id_++;
  in_use_[index] += size;
  cursor_ = range.begin + pages(size) + kPage;
  freed_.erase(range.begin);
  ranges_[range.begin] = range;
  *address = range.begin;
  return CUDA_SUCCESS;
}

CUresult Memory::release(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || found->second.kind != Kind::device) {
    if (freed_.contains(address)) violation("device memory is freed twice");
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Range range = found->second;
  require_intact(range);
  ++shared_->generations[range.slot];
  ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(range.offset),
              static_cast<off_t>(pages(range.size)));
  ::mprotect(range.host, pages(range.size), PROT_NONE);
  in_use_[static_cast<std::size_t>(range.device)] -= range.size;
  freed_[range.begin] = range.size;
  ranges_.erase(found);
  return CUDA_SUCCESS;
}

std::size_t Memory::in_use(int device) {
  const std::lock_guard lock(mutex_);
  return in_use_[static_cast<std::size_t>(device)];
}

CUresult Memory::lock_host(void* begin, std::size_t size, Kind kind, int device) {
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const auto next = ranges_.upper_bound(at);
  if (next != ranges_.end() && next->first < at + size) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  if (next != ranges_.begin() && std::prev(next)->second.end() > at) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  ranges_[at] = {.begin = at,
                 .size = size,
                 .kind = kind,
                 .device = device,
                 .host = static_cast<std::byte*>(begin),
                 .id = next_id_++};
  return CUDA_SUCCESS;
}

CUresult Memory::unlock_host(void* begin, Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<std::uintptr_t>(begin));
  if (found == ranges_.end() || found->second.kind != kind) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  ranges_.erase(found);
  return CUDA_SUCCESS;
}

std::optional<Range> Memory::find(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return std::nullopt;
  const Range& range = std::prev(next)->second;
  return address < range.end() ? std::optional(range) : std::nullopt;
}

bool Memory::is_device_address(std::uintptr_t address) {
  const auto base = reinterpret_cast<std::uintptr_t>(device_base_);
  if (base != 0 && address >= base && address < base + kArena) return true;
  if (const auto range = find(address)) return range->on_device();
  const std::lock_guard lock(mutex_);  // a peer's memory that was closed here
  const auto freed = freed_.upper_bound(address);
  return freed != freed_.begin() && address < std::prev(freed)->first + std::prev(freed)->second;
}

std::byte* Memory::reach(const void* address, std::size_t size, const char* who) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto range = find(at);
  if (!range) {
    if (is_device_address(at)) refuse(address, size, who);
    return static_cast<std::byte*>(const_cast<void*>(address));  // pageable memory
  }
  if (size > range->end() - at) refuse(address, size, who);
  if (range->owner != nullptr && range->owner->generations[range->slot] != range->generation) {
    refuse(address, size, who);
  }
  return range->host + (at - range->begin);
}

void Memory::refuse(const void* address, std::size_t size, const char* who) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  std::ostringstream text;
  text << who << " touches " << size << " bytes at " << address << ", ";
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.upper_bound(at);
  const auto freed = freed_.upper_bound(at);
  if (next != ranges_.begin() && at < std::prev(next)->second.end()) {
    const Range& range = std::prev(next)->second;
    text << "in an allocation of " << range.size << " bytes at " << reinterpret_cast<void*>(range.begin)
         << (size > range.end() - at ? ": past its end" : ": its owner has freed it");
  } else if (freed != freed_.begin() && at < std::prev(freed)->first + std::prev(freed)->second) {
    text << "in an allocation of " << std::prev(freed)->second << " bytes at "
         << reinterpret_cast<void*>(std::prev(freed)->first) << " that has been freed";
  } else {
    text << "where nothing has been allocated";
  }
  violation(text.str());
}

void Memory::require_intact(const Range& range) const {
  const std::byte* const fence = range.host + range.size;
  const std::size_t count = pages(range.size) - range.size;
  if (std::all_of(fence, fence + count, [](std::byte b) { return b == std::byte{kFence}; })) return;
  std::ostringstream text;
  text << "bytes behind an allocation of " << range.size << " bytes at " << reinterpret_cast<void*>(range.begin)
       << " have been written";
  violation(text.str());
}

void Memory::check() {
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, range] : ranges_) {
    if (range.kind == Kind::device) require_intact(range);
  }
}

long Memory::count(Kind kind) {
  const std::lock_guard lock(mutex_);
  return std::ranges::count_if(ranges_, [&](const auto& item) { return item.second.kind == kind; });
}

}  // namespace standin
