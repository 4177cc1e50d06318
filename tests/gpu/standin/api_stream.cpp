// Implements streams, events and host functions of the driver's API.
#include "context.hpp"
#include "memory.hpp"
#include "queueing.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

CUresult create_stream(CUstream* stream, unsigned flags, int priority) {
  if (stream == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  *stream = stream_handles().add(
      Scheduler::get().create(current_context(), flags != CU_STREAM_NON_BLOCKING, false, priority));
  return CUDA_SUCCESS;
}

Point latest(Event& event) {
  const std::lock_guard lock(event.mutex);
  if (event.slot != nullptr) return {nullptr, 0, event.slot, event.slot->issued.load()};
  return event.latest;
}

}  // namespace

STANDIN_API CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  STANDIN_ENTER(context);
  return create_stream(stream, flags, 0);
}

STANDIN_API CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  STANDIN_ENTER(context);
  return create_stream(stream, flags, priority);
}

STANDIN_API CUresult cuStreamDestroy_v2(CUstream stream) {
  STANDIN_ENTER(release);
  const auto removed = stream_handles().remove(stream);
  if (removed == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Scheduler::get().close(removed);
  return Settings::get().stuck();
}

STANDIN_API CUresult cuStreamSynchronize(CUstream stream) {
  STANDIN_ENTER(context);
  const auto found = find_stream(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (found->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Scheduler::get().wait(Scheduler::get().tail(found));
  return Settings::get().stuck();
}

STANDIN_API CUresult cuStreamQuery(CUstream stream) {
  STANDIN_ENTER(context);
  const auto found = find_stream(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool reached = Scheduler::get().poll(Scheduler::get().tail(found));
  if (const CUresult stuck = Settings::get().stuck(); stuck != CUDA_SUCCESS) return stuck;
  return reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// Waits for the latest record at the time of this call; without a record, returns immediately.
STANDIN_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  STANDIN_ENTER(context);
  const auto found = event_handles().find(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  Operation wait = operation([] {});
  wait.exclusive = false;
  wait.after.push_back(latest(*found));
  return queue(stream, std::move(wait));
}

STANDIN_API CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  STANDIN_ENTER(context);
  const auto found = find_stream(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *status = found->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  STANDIN_ENTER(context);
  const auto found = find_stream(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = reinterpret_cast<CUcontext>(found->context);
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  STANDIN_ENTER(context);
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Operation call = operation([=] {
    in_host_function = true;
    function(data);
    in_host_function = false;
  });
  call.exclusive = false;
  return queue(stream, std::move(call));
}

STANDIN_API CUresult cuEventCreate(CUevent* event, unsigned flags) {
  STANDIN_ENTER(context);
  if (event == nullptr || flags > CU_EVENT_ALL_FLAGS) return CUDA_ERROR_INVALID_VALUE;
  const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
  if (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Event>();
  made->context = current_context();
  made->flags = flags;
  if (shared && (made->slot = Memory::get().new_event()) == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *event = event_handles().add(std::move(made));
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuEventDestroy_v2(CUevent event) {
  STANDIN_ENTER(release);
  const auto removed = event_handles().remove(event);
  if (removed == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (removed->slot != nullptr && !removed->opened) Memory::get().free_event(removed->slot);
  return Settings::get().stuck();
}

STANDIN_API CUresult cuEventRecord(CUevent event, CUstream stream) {
  STANDIN_ENTER(context);
  const auto found = event_handles().find(event);
  const auto in = find_stream(stream);
  if (found == nullptr || in == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (in->context != found->context) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(found->mutex);
  Operation record = operation([found] { found->reached_ns = now_ns(); });
  record.exclusive = false;
  record.records = found->slot;
  if (found->slot != nullptr) record.value = ++found->slot->issued;
  found->recorded = true;
  return queue(stream, std::move(record), &found->latest);
}

STANDIN_API CUresult cuEventQuery(CUevent event) {
  STANDIN_ENTER(context);
  if (ends_a_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const auto found = event_handles().find(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool reached = Scheduler::get().poll(latest(*found));
  if (const CUresult stuck = Settings::get().stuck(); stuck != CUDA_SUCCESS) return stuck;
  return reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

STANDIN_API CUresult cuEventSynchronize(CUevent event) {
  STANDIN_ENTER(context);
  const auto found = event_handles().find(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Scheduler::get().wait(latest(*found));
  return Settings::get().stuck();
}

namespace {

CUresult elapsed(float* milliseconds, CUevent start, CUevent end) {
  const auto first = event_handles().find(start), last = event_handles().find(end);
  if (milliseconds == nullptr || first == nullptr || last == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& event : {first, last}) {
    if (!event->recorded || (event->flags & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
    if (!Scheduler::get().poll(latest(*event))) return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = static_cast<float>(last->reached_ns - first->reached_ns) / 1e6F;
  return CUDA_SUCCESS;
}

}  // namespace

STANDIN_API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  STANDIN_ENTER(context);
  return elapsed(milliseconds, start, end);
}

STANDIN_API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  STANDIN_ENTER(context);
  return elapsed(milliseconds, start, end);
}
