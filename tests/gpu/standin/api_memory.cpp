// Implements device memory, page-locked host memory, and the attributes of addresses.
#include <cstring>

#include "context.hpp"
#include "memory.hpp"
#include "queueing.hpp"
#include "settings.hpp"
#include "standin.h"

using namespace standin;

namespace {

CUresult allocate(CUdeviceptr* address, std::size_t size) {
  if (address == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (Settings::get().takes_fault("alloc")) return CUDA_ERROR_OUT_OF_MEMORY;
  return Memory::get().allocate(current_context()->device, size, address);
}

CUresult stuck_or(CUresult result) {
  const CUresult stuck = Settings::get().stuck();
  return stuck != CUDA_SUCCESS ? stuck : result;
}

}  // namespace

CUresult standin::free_device(CUdeviceptr address) { return Memory::get().release(address); }

STANDIN_API CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t size) {
  STANDIN_ENTER(context);
  if (ends_a_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return allocate(address, size);
}

STANDIN_API CUresult cuMemFree_v2(CUdeviceptr address) {
  STANDIN_ENTER(release);
  if (address == 0) return stuck_or(CUDA_SUCCESS);
  Scheduler::get().drain(current_context());
  return stuck_or(free_device(address));
}

// Returns the address immediately, as documented. The stand-in does not check that its first use
// follows the stream.
STANDIN_API CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t size, CUstream stream) {
  STANDIN_ENTER(context);
  if (find_stream(stream) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return allocate(address, size);
}

STANDIN_API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  STANDIN_ENTER(release);
  if (address == 0) return stuck_or(CUDA_SUCCESS);
  const auto range = Memory::get().find(address);
  if (!range || range->begin != address || range->kind != Kind::device) return CUDA_ERROR_INVALID_VALUE;
  Operation free = operation([address] { free_device(address); });
  free.always = true;
  return stuck_or(queue(stream, std::move(free)));
}

STANDIN_API CUresult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  STANDIN_ENTER(context);
  *total = Settings::get().memory;
  *free = *total - Memory::get().in_use(current_context()->device);
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
  STANDIN_ENTER(context);
  const auto range = Memory::get().find(address);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = range->begin;
  if (size != nullptr) *size = range->size;
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemHostRegister_v2(void* begin, std::size_t size, unsigned flags) {
  STANDIN_ENTER(context);
  if (begin == nullptr || size == 0 || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  if (ends_a_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (Settings::get().takes_fault("register")) return CUDA_ERROR_NOT_SUPPORTED;
  return Memory::get().lock_host(begin, size, Kind::registered, current_context()->device);
}

STANDIN_API CUresult cuMemHostUnregister(void* begin) {
  STANDIN_ENTER(release);
  return stuck_or(Memory::get().unlock_host(begin, Kind::registered));
}

STANDIN_API CUresult cuMemHostAlloc(void** address, std::size_t size, unsigned flags) {
  STANDIN_ENTER(context);
  if (address == nullptr || size == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if (Settings::get().takes_fault("hostalloc")) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = std::aligned_alloc(kPage, (size + kPage - 1) / kPage * kPage);
  if (*address == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  return Memory::get().lock_host(*address, size, Kind::pinned, current_context()->device);
}

STANDIN_API CUresult cuMemFreeHost(void* address) {
  STANDIN_ENTER(release);
  Scheduler::get().drain(current_context());
  if (Memory::get().unlock_host(address, Kind::pinned) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  std::free(address);
  return Settings::get().stuck();
}

STANDIN_API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* host, unsigned flags) {
  STANDIN_ENTER(context);
  const auto range = Memory::get().find(reinterpret_cast<std::uintptr_t>(host));
  if (flags != 0 || !range || range->on_device()) return CUDA_ERROR_INVALID_VALUE;
  *device = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

namespace {

template <class T>
CUresult write(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult pointer_attribute(void* data, int attribute, const Range& range, CUdeviceptr address) {
  switch (attribute) {
    case 1:
      return write(data, reinterpret_cast<CUcontext>(primary_context(range.device)));  // CONTEXT
    case 2:
      return write(data, range.on_device() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case 3:
      return write(data, address);  // DEVICE_POINTER
    case 4:                         // HOST_POINTER
      if (range.on_device()) return CUDA_ERROR_INVALID_VALUE;
      return write(data, address);
    case 7:
      return write(data, static_cast<unsigned long long>(range.id));  // BUFFER_ID
    case 8:
      return write(data, false);  // IS_MANAGED
    case 9:
      return write(data, range.device);  // DEVICE_ORDINAL
    case 10:
      return write(data, range.kind == Kind::device);  // IS_LEGACY_CUDA_IPC_CAPABLE
    case 11:
      return write(data, static_cast<CUdeviceptr>(range.begin));  // RANGE_START_ADDR
    case 12:
      return write(data, range.size);  // RANGE_SIZE
    case 13:
      return write(data, true);  // MAPPED
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

std::size_t attribute_size(int attribute) {
  return attribute == 2 || attribute == 9 ? 4 : attribute == 8 || attribute == 10 || attribute == 13 ? 1 : 8;
}

}  // namespace

STANDIN_API CUresult cuPointerGetAttribute(void* data, int attribute, CUdeviceptr address) {
  STANDIN_ENTER(initialised);
  const auto range = Memory::get().find(address);
  if (data == nullptr || !range) return CUDA_ERROR_INVALID_VALUE;
  return pointer_attribute(data, attribute, *range, address);
}

// Returns attributes. Unlike the single query, it returns success for memory that CUDA does not
// know, with zeros.
STANDIN_API CUresult cuPointerGetAttributes(unsigned count, int* attributes, void** data, CUdeviceptr address) {
  STANDIN_ENTER(initialised);
  if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = Memory::get().find(address);
  for (unsigned i = 0; i < count; ++i) {
    if (range && pointer_attribute(data[i], attributes[i], *range, address) == CUDA_SUCCESS) continue;
    std::memset(data[i], 0, attribute_size(attributes[i]));
    if (attributes[i] == 9) write(data[i], -2);  // CU_DEVICE_INVALID
  }
  return CUDA_SUCCESS;
}
