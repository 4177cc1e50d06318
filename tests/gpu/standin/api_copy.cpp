// Implements copies and memset. Copies are asynchronous, as the driver's manual specifies in "API
// synchronization behavior":
//   from pageable memory   the call reads the source; the destination is written in stream order
//   to pageable memory     the call returns when the copy is complete
//   page-locked memory     is read and written only when the copy runs
//   host to host           the call returns when the copy is complete
// The synchronous forms run in the legacy stream; between devices they do not wait.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "context.hpp"
#include "memory.hpp"
#include "queueing.hpp"
#include "settings.hpp"

using namespace standin;

namespace {

enum class Side { device, locked, pageable };

struct End {
  void* address = nullptr;
  Side side = Side::pageable;
  std::uint64_t id = 0;
};

CUresult classify(const void* address, std::size_t size, const char* who, End* end) {
  Memory& memory = Memory::get();
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto range = memory.find(at);
  *end = {const_cast<void*>(address), Side::pageable, range ? range->id : 0};
  if (range ? range->on_device() : memory.is_device_address(at)) {
    memory.reach(address, size, who);
    end->side = Side::device;
  } else if (range) {
    if (size > range->end() - at) return CUDA_ERROR_INVALID_VALUE;  // a copy must not cross the end of a registration
    end->side = Side::locked;
  }
  return CUDA_SUCCESS;
}

std::byte* reach_later(const End& end, std::size_t size, const char* who) {
  if (end.side == Side::locked) {
    const auto range = Memory::get().find(reinterpret_cast<std::uintptr_t>(end.address));
    if (!range || range->id != end.id) {
      violation(std::string(who) + " runs after its page-locked memory was unregistered or freed");
    }
  }
  return Memory::get().reach(end.address, size, who);
}

CUresult copy(const char* who, const void* to, const void* from, std::size_t size, CUstream stream, bool synchronous) {
  if (size == 0) return CUDA_SUCCESS;
  if (to == nullptr || from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  End target, source;
  if (const CUresult error = classify(to, size, who, &target); error != CUDA_SUCCESS) return error;
  if (const CUresult error = classify(from, size, who, &source); error != CUDA_SUCCESS) return error;
  std::shared_ptr<std::vector<std::byte>> staged;
  const bool wait = target.side == Side::pageable || (target.side == Side::locked && source.side != Side::device) ||
                    (synchronous && (target.side == Side::locked || source.side == Side::locked));
  const auto stream_found = find_stream(stream);
  if (stream_found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (source.side == Side::pageable && !wait) {
    if (synchronous) Scheduler::get().wait(Scheduler::get().tail(stream_found));
    const auto* const bytes = static_cast<const std::byte*>(from);
    staged = std::make_shared<std::vector<std::byte>>(bytes, bytes + size);
  }
  Point point;
  const CUresult result =
      queue(stream, operation([=] {
              if (Settings::get().takes_fault("copy")) return Settings::get().stick(CUDA_ERROR_LAUNCH_FAILED);
              std::byte* const out = reach_later(target, size, who);
              std::memmove(out, staged != nullptr ? staged->data() : reach_later(source, size, who), size);
            }),
            &point);
  if (result != CUDA_SUCCESS || !wait) return result;
  if (!aside && !synchronous && (target.side == Side::pageable || source.side == Side::pageable))
    ++Settings::get().pageable_waits;
  Scheduler::get().wait(point);
  return Settings::get().stuck();
}

const void* pointer(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }

}  // namespace

Operation standin::operation(std::function<void()> run) {
  Operation made;
  made.run = std::move(run);
  return made;
}

CUresult standin::queue(CUstream stream, Operation operation, Point* point) {
  const auto found = find_stream(stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (found->capturing) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const Point queued = Scheduler::get().enqueue(found, std::move(operation));
  if (point != nullptr) *point = queued;
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
  STANDIN_ENTER(context);
  return copy(__func__, pointer(to), pointer(from), size, nullptr, true);
}

STANDIN_API CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream) {
  STANDIN_ENTER(context);
  return copy(__func__, pointer(to), pointer(from), size, stream, false);
}

STANDIN_API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t size) {
  STANDIN_ENTER(context);
  return copy(__func__, pointer(to), from, size, nullptr, true);
}

STANDIN_API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t size) {
  STANDIN_ENTER(context);
  return copy(__func__, to, pointer(from), size, nullptr, true);
}

STANDIN_API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t size) {
  STANDIN_ENTER(context);
  return copy(__func__, pointer(to), pointer(from), size, nullptr, true);
}

STANDIN_API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t size, CUstream stream) {
  STANDIN_ENTER(context);
  return copy(__func__, pointer(to), from, size, stream, false);
}

STANDIN_API CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t size, CUstream stream) {
  STANDIN_ENTER(context);
  return copy(__func__, to, pointer(from), size, stream, false);
}

STANDIN_API CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t size, CUstream stream) {
  STANDIN_ENTER(context);
  return copy(__func__, pointer(to), pointer(from), size, stream, false);
}

STANDIN_API CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream stream) {
  STANDIN_ENTER(context);
  if (count == 0) return CUDA_SUCCESS;
  End target;
  if (const CUresult error = classify(pointer(to), count, "cuMemsetD8Async", &target); error != CUDA_SUCCESS)
    return error;
  if (target.side == Side::pageable) return CUDA_ERROR_INVALID_VALUE;
  return queue(stream, operation([=] { std::memset(reach_later(target, count, "cuMemsetD8Async"), value, count); }));
}
