// Implements context.hpp, and the driver's functions for primary and current contexts.
#include "context.hpp"

#include <vector>

namespace standin {
namespace {

constexpr int kDevicesAtMost = 64;

struct PerThread {
  std::vector<Context*> current;
  std::unordered_map<Context*, std::shared_ptr<Stream>> streams;  // CU_STREAM_PER_THREAD

  ~PerThread() {
    for (auto& [context, stream] : streams) Scheduler::get().close(stream);
  }
};

PerThread& per_thread() {
  thread_local PerThread state;
  return state;
}

std::mutex contexts_mutex;

Context* contexts() {
  static Context* const all = new Context[kDevicesAtMost];
  return all;
}

CUresult push(CUcontext context) {
  per_thread().current.push_back(reinterpret_cast<Context*>(context));
  return CUDA_SUCCESS;
}

}  // namespace

Context* current_context() {
  const auto& stack = per_thread().current;
  return stack.empty() ? nullptr : stack.back();
}

Context* primary_context(int device) { return &contexts()[device]; }

long retained_contexts() {
  const std::lock_guard lock(contexts_mutex);
  long count = 0;
  for (int i = 0; i < kDevicesAtMost; ++i) count += contexts()[i].retained > 0 ? 1 : 0;
  return count;
}

Handles<Stream, CUstream>& stream_handles() {
  static auto* const handles = new Handles<Stream, CUstream>("a stream");
  return *handles;
}

Handles<Event, CUevent>& event_handles() {
  static auto* const handles = new Handles<Event, CUevent>("an event");
  return *handles;
}

std::shared_ptr<Stream> find_stream(CUstream stream) {
  Context* const context = current_context();
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return context->legacy;
  if (stream != CU_STREAM_PER_THREAD) return stream_handles().find(stream);
  auto& own = per_thread().streams[context];
  if (own == nullptr) own = Scheduler::get().create(context, true, false, 0);
  return own;
}

}  // namespace standin

using namespace standin;

STANDIN_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  STANDIN_ENTER(initialised);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || device >= Settings::get().devices) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(contexts_mutex);
  Context* const primary = primary_context(device);
  if (primary->legacy == nullptr) {
    primary->device = device;
    primary->legacy = Scheduler::get().create(primary, true, true, 0);
  }
  ++primary->retained;
  *context = reinterpret_cast<CUcontext>(primary);
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  STANDIN_ENTER(initialised);
  if (device < 0 || device >= Settings::get().devices) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(contexts_mutex);
  if (primary_context(device)->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --primary_context(device)->retained;
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxSetCurrent(CUcontext context) {
  STANDIN_ENTER(initialised);
  auto& stack = per_thread().current;
  if (!stack.empty()) stack.pop_back();
  return context == nullptr ? CUDA_SUCCESS : push(context);
}

STANDIN_API CUresult cuCtxGetCurrent(CUcontext* context) {
  STANDIN_ENTER(initialised);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(current_context());
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  STANDIN_ENTER(initialised);
  return context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : push(context);
}

STANDIN_API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  STANDIN_ENTER(initialised);
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = reinterpret_cast<CUcontext>(current_context());
  per_thread().current.pop_back();
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxGetDevice(CUdevice* device) {
  STANDIN_ENTER(context);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuCtxSynchronize() {
  STANDIN_ENTER(context);
  Scheduler::get().drain(current_context());
  return Settings::get().stuck();
}
