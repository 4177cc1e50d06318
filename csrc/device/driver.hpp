// Loads CUDA's driver API at run time, when the first GPU array is passed. Building ringcomm, and
// running it without GPUs, does not need CUDA.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace ringcomm {

using CuResult = int;  // 0: success
using CuDevice = int;
using CuContext = struct CUctx_st*;
using CuStream = struct CUstream_st*;
using CuEvent = struct CUevent_st*;
using CuModule = struct CUmod_st*;
using CuFunction = struct CUfunc_st*;
using CuPointer = unsigned long long;
struct CuIpcMemory {
  char bytes[64];
};
struct CuIpcEvent {
  char bytes[64];
};

inline constexpr CuResult kCuInvalidValue = 1, kCuOutOfMemory = 2, kCuNotReady = 600;
inline constexpr int kCuCaptureRelaxed = 2;                         // CUstreamCaptureMode
inline constexpr unsigned kCuUntimed = 2, kCuBetweenProcesses = 4;  // flags of events
inline constexpr unsigned kCuStreamNonBlocking = 1;                 // flag of streams: not ordered with the default one
inline constexpr unsigned kCuPortable = 1;                          // flag of registered memory: valid in all contexts

// Functions as documented in CUDA's driver API, with the names that the library exports.
// clang-format off: one row per function
#define RINGCOMM_CUDA_FUNCTIONS(one) \
  one(init, "cuInit", (unsigned)) \
  one(error_name, "cuGetErrorName", (CuResult, const char**)) \
  one(error_string, "cuGetErrorString", (CuResult, const char**)) \
  one(device_count, "cuDeviceGetCount", (int*)) \
  one(device_get, "cuDeviceGet", (CuDevice*, int)) \
  one(device_attribute, "cuDeviceGetAttribute", (int*, int, CuDevice)) \
  one(device_uuid, "cuDeviceGetUuid_v2", (void*, CuDevice)) \
  one(primary_retain, "cuDevicePrimaryCtxRetain", (CuContext*, CuDevice)) \
  one(context_push, "cuCtxPushCurrent_v2", (CuContext)) \
  one(context_pop, "cuCtxPopCurrent_v2", (CuContext*)) \
  one(memory_allocate, "cuMemAlloc_v2", (CuPointer*, std::size_t)) \
  one(memory_free, "cuMemFree_v2", (CuPointer)) \
  one(memory_range, "cuMemGetAddressRange_v2", (CuPointer*, std::size_t*, CuPointer)) \
  one(copy, "cuMemcpyAsync", (CuPointer, CuPointer, std::size_t, CuStream)) \
  one(host_register, "cuMemHostRegister_v2", (void*, std::size_t, unsigned)) \
  one(host_unregister, "cuMemHostUnregister", (void*)) \
  one(pointer_attribute, "cuPointerGetAttribute", (void*, int, CuPointer)) \
  one(stream_create, "cuStreamCreate", (CuStream*, unsigned)) \
  one(stream_destroy, "cuStreamDestroy_v2", (CuStream)) \
  one(stream_synchronize, "cuStreamSynchronize", (CuStream)) \
  one(stream_wait, "cuStreamWaitEvent", (CuStream, CuEvent, unsigned)) \
  one(stream_capturing, "cuStreamIsCapturing", (CuStream, int*)) \
  one(thread_capture_mode, "cuThreadExchangeStreamCaptureMode", (int*)) \
  one(event_create, "cuEventCreate", (CuEvent*, unsigned)) \
  one(event_destroy, "cuEventDestroy_v2", (CuEvent)) \
  one(event_record, "cuEventRecord", (CuEvent, CuStream)) \
  one(event_query, "cuEventQuery", (CuEvent)) \
  one(event_synchronize, "cuEventSynchronize", (CuEvent)) \
  one(ipc_memory_handle, "cuIpcGetMemHandle", (CuIpcMemory*, CuPointer)) \
  one(ipc_memory_open, "cuIpcOpenMemHandle_v2", (CuPointer*, CuIpcMemory, unsigned)) \
  one(ipc_memory_close, "cuIpcCloseMemHandle", (CuPointer)) \
  one(ipc_event_handle, "cuIpcGetEventHandle", (CuIpcEvent*, CuEvent)) \
  one(ipc_event_open, "cuIpcOpenEventHandle", (CuEvent*, CuIpcEvent)) \
  one(module_load, "cuModuleLoadData", (CuModule*, const void*)) \
  one(module_function, "cuModuleGetFunction", (CuFunction*, CuModule, const char*)) \
  one(launch, "cuLaunchKernel", (CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, \
      unsigned, unsigned, CuStream, void**, void**))
// clang-format on

struct Driver {
  // Throws Error(invalid) without a driver, or without a GPU for it.
  static std::shared_ptr<const Driver> load(const std::string& library);

  // Throws Error(transport) with `what` failed, for errors that may occur on one rank only.
  void check(CuResult result, const char* what) const {
    if (result != 0) fail(result, what);
  }
  std::string text_of(CuResult result) const;

#define RINGCOMM_ONE(name, symbol, parameters) CuResult(*name) parameters = nullptr;
  RINGCOMM_CUDA_FUNCTIONS(RINGCOMM_ONE)
#undef RINGCOMM_ONE

 private:
  [[noreturn]] void fail(CuResult result, const char* what) const;
};

inline CuPointer device_address(const void* data) { return reinterpret_cast<CuPointer>(data); }

}  // namespace ringcomm
