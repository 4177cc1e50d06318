// Implements cuInit, devices and names of errors.
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "context.hpp"
#include "memory.hpp"
#include "settings.hpp"
#include "standin.h"

using namespace standin;

namespace {

constexpr int kVersion = 12080;

struct Name {
  CUresult error;
  const char* name;
  const char* text;
};
#define STANDIN_NAME(error, text) {error, #error, text}
constexpr Name kNames[] = {
    STANDIN_NAME(CUDA_SUCCESS, "no error"),
    STANDIN_NAME(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    STANDIN_NAME(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    STANDIN_NAME(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    STANDIN_NAME(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    STANDIN_NAME(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    STANDIN_NAME(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    STANDIN_NAME(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    STANDIN_NAME(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    STANDIN_NAME(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    STANDIN_NAME(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    STANDIN_NAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    STANDIN_NAME(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    STANDIN_NAME(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    STANDIN_NAME(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    STANDIN_NAME(CUDA_ERROR_NOT_READY, "device not ready"),
    STANDIN_NAME(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    STANDIN_NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    STANDIN_NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                 "part or all of the requested memory range is already mapped"),
    STANDIN_NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    STANDIN_NAME(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    STANDIN_NAME(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    STANDIN_NAME(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    STANDIN_NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    STANDIN_NAME(CUDA_ERROR_UNKNOWN, "unknown error"),
};

// Returns an attribute by its CUdevice_attribute number, for those that ringcomm and the tests
// query.
int attribute_value(int attribute, int device) {
  switch (attribute) {
    case 1:
      return 1024;  // MAX_THREADS_PER_BLOCK
    case 2:
      return 1024;  // MAX_BLOCK_DIM_X
    case 5:
      return 0x7fffffff;  // MAX_GRID_DIM_X
    case 8:
      return 48 << 10;  // MAX_SHARED_MEMORY_PER_BLOCK
    case 10:
      return 32;  // WARP_SIZE
    case 13:
      return 1000000;  // CLOCK_RATE, kHz
    case 16:
      return 4;  // MULTIPROCESSOR_COUNT
    case 33:
      return 0x10 + device;  // PCI_BUS_ID
    case 38:
      return 4 << 20;  // L2_CACHE_SIZE
    case 39:
      return 2048;  // MAX_THREADS_PER_MULTIPROCESSOR
    case 40:
      return 2;  // ASYNC_ENGINE_COUNT
    case 75:
      return 9;  // COMPUTE_CAPABILITY_MAJOR
    case 15:
    case 19:
    case 31:
    case 41:  // GPU_OVERLAP, CAN_MAP_HOST_MEMORY, CONCURRENT_KERNELS, UNIFIED_ADDRESSING
    case 78:
    case 91:
    case 99:  // STREAM_PRIORITIES, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, HOST_REGISTER
    case 115:
    case 125:
      return 1;  // MEMORY_POOLS, IPC_EVENT
    default:
      return 0;
  }
}

const Name* find_name(CUresult error) {
  for (const Name& name : kNames) {
    if (name.error == error) return &name;
  }
  return nullptr;
}

bool exists(CUdevice device) { return device >= 0 && device < Settings::get().devices; }

}  // namespace

STANDIN_API CUresult cuInit(unsigned flags) {
  STANDIN_ENTER(nothing);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  static std::once_flag once;
  static CUresult result = CUDA_SUCCESS;
  std::call_once(once, [] {
    Settings::get().read_environment();
    result = Memory::get().start();
    Settings::get().initialised = true;
  });
  return result != CUDA_SUCCESS ? result : Settings::get().devices == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

STANDIN_API CUresult cuDriverGetVersion(int* version) {
  STANDIN_ENTER(nothing);
  *version = kVersion;
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuGetErrorName(CUresult error, const char** text) {
  STANDIN_ENTER(nothing);
  const Name* const found = find_name(error);
  *text = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

STANDIN_API CUresult cuGetErrorString(CUresult error, const char** text) {
  STANDIN_ENTER(nothing);
  const Name* const found = find_name(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceGetCount(int* count) {
  STANDIN_ENTER(initialised);
  *count = Settings::get().devices;
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  STANDIN_ENTER(initialised);
  if (!exists(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  STANDIN_ENTER(initialised);
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (length <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::strncpy(name, "ringcomm stand-in (no GPU)", static_cast<std::size_t>(length));
  name[length - 1] = 0;
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  STANDIN_ENTER(initialised);
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || attribute <= 0) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute_value(attribute, device);
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  STANDIN_ENTER(initialised);
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = Settings::get().memory;
  return CUDA_SUCCESS;
}

namespace {

void write_uuid(CUuuid* uuid, CUdevice device) {
  const std::uint64_t host = std::hash<std::string>{}(Settings::get().host + "standin");
  const std::uint64_t ordinal = 0x7374616e64000000 + static_cast<std::uint64_t>(device);
  std::memcpy(uuid->bytes, &host, 8);
  std::memcpy(uuid->bytes + 8, &ordinal, 8);
}

}  // namespace

STANDIN_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  STANDIN_ENTER(initialised);
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  write_uuid(uuid, device);
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  STANDIN_ENTER(initialised);
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  write_uuid(uuid, device);
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  STANDIN_ENTER(initialised);
  if (!exists(device) || !exists(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

STANDIN_API int standin_device_uuid(char* bytes) {
  Context* const context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUuuid uuid;
  write_uuid(&uuid, context->device);
  std::memcpy(bytes, uuid.bytes, sizeof uuid.bytes);
  return CUDA_SUCCESS;
}
