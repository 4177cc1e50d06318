// Implements torch's allocators of device memory and of pinned host memory.
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>

#include <map>
#include <mutex>

#include "driver.hpp"

namespace guard {

inline void (*record_memory)(std::uint64_t address, std::int64_t stream) = nullptr;
inline std::uint64_t (*allocate_memory)(int device, std::uint64_t nbytes) = nullptr;
inline void (*free_memory)(std::uint64_t address) = nullptr;  // null once Python ends

// Allocates for torch.UntypedStorage(n, device=...) and all tensors; torch_memory.py decides about
// freed memory.
struct Memory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t nbytes) override {
    const std::uint64_t address = allocate_memory(current_device, nbytes);
    TORCH_CHECK(address != 0, "out of memory on device ", current_device, ": ", nbytes, " bytes");
    auto* pointer = reinterpret_cast<void*>(address);
    return {pointer, pointer, &release, Device(DeviceType::PrivateUse1, static_cast<DeviceIndex>(current_device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "device memory is not the host's");
  }
  static void release(void* pointer) {
    if (free_memory != nullptr) free_memory(reinterpret_cast<std::uint64_t>(pointer));
  }
};

// Allocates host memory that the driver knows, so that copies need not wait: Tensor.pin_memory().
struct Pinned final : c10::Allocator {
  c10::DataPtr allocate(std::size_t nbytes) override {
    if (nbytes == 0) return {nullptr, nullptr, &release, DeviceType::CPU};
    void* made = nullptr;
    OnDevice here(current_device);
    call("cuMemHostAlloc", &made, nbytes, 0U);
    const std::lock_guard lock(mutex());
    ranges()[made] = nbytes;
    return {made, made, &release, DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t nbytes) const override { default_copy_data(to, from, nbytes); }
  static void release(void* pointer) {
    if (pointer == nullptr || free_memory == nullptr) return;
    {
      const std::lock_guard lock(mutex());
      ranges().erase(pointer);
    }
    OnDevice here(current_device);
    try_call("cuMemFreeHost", pointer);
  }
  static bool has(const void* pointer) {
    const std::lock_guard lock(mutex());
    auto after = ranges().upper_bound(const_cast<void*>(pointer));
    if (after == ranges().begin()) return false;
    --after;
    return static_cast<const char*>(pointer) < static_cast<char*>(after->first) + after->second;
  }
  static std::map<void*, std::size_t>& ranges() {
    static auto* made = new std::map<void*, std::size_t>();
    return *made;
  }
  static std::mutex& mutex() {
    static auto* made = new std::mutex();
    return *made;
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return !contexts.empty(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void* pointer) const override { return Pinned::has(pointer); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto* made = new Pinned();
    return made;
  }
};

}  // namespace guard
