// Implements the device interface of torch (c10::impl::DeviceGuardImplInterface): current device
// and stream of each thread, and events. Autograd uses it: a node of backward runs on the stream of
// its forward, and events order gradients that cross streams. A stream's id is its driver handle, 0
// the default stream. Waits release the GIL, because the threads of streams run Python.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "driver.hpp"
#include "memory.hpp"

namespace guard {

using c10::Stream;

inline thread_local std::vector<std::int64_t> current_streams;

inline std::int64_t& stream_of(int device) {
  current_streams.resize(contexts.size(), 0);
  return current_streams.at(static_cast<std::size_t>(device));
}

inline Handle handle_of(const Stream& stream) { return reinterpret_cast<Handle>(stream.id()); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::PrivateUse1; }
  Device device(int index) const { return {DeviceType::PrivateUse1, static_cast<DeviceIndex>(index)}; }
  int index_of(Device given) const { return given.has_index() ? given.index() : current_device; }

  Device exchangeDevice(Device next) const override {
    const Device before = getDevice();
    setDevice(next);
    return before;
  }
  Device getDevice() const override { return device(current_device); }
  void setDevice(Device next) const override {
    bind(index_of(next));
    current_device = index_of(next);
  }
  void uncheckedSetDevice(Device next) const noexcept override { setDevice(next); }
  DeviceIndex deviceCount() const noexcept override { return static_cast<DeviceIndex>(contexts.size()); }

  Stream stream(int index, std::int64_t id) const { return Stream(Stream::UNSAFE, device(index), id); }
  Stream getStream(Device of) const override { return stream(index_of(of), stream_of(index_of(of))); }
  Stream getDefaultStream(Device of) const override { return stream(index_of(of), 0); }
  Stream getStreamFromGlobalPool(Device of, bool) const override { return getNewStream(of, 0); }
  // Takes streams as torch.cuda does: from a pool of 32 per device, in turn; they are never
  // destroyed.
  Stream getNewStream(Device of, int) const override {
    static std::vector<std::vector<Handle>> pools(contexts.size());
    static std::vector<std::size_t> taken(contexts.size());
    const auto index = static_cast<std::size_t>(index_of(of));
    const std::size_t turn = taken.at(index)++ % 32;
    if (turn == pools[index].size()) {
      OnDevice here(index_of(of));
      Handle made = nullptr;
      constexpr unsigned kNonBlocking = 1;
      call("cuStreamCreate", &made, kNonBlocking);
      pools[index].push_back(made);
    }
    return stream(index_of(of), reinterpret_cast<std::int64_t>(pools[index][turn]));
  }
  Stream exchangeStream(Stream next) const override {
    const Stream before = getStream(next.device());
    stream_of(index_of(next.device())) = next.id();
    return before;
  }
  void* getStreamNativeHandle(const Stream of) const override { return handle_of(of); }
  bool queryStream(const Stream& of) const override {
    OnDevice here(index_of(of.device()));
    return try_call("cuStreamQuery", handle_of(of)) == 0;
  }
  bool isStreamCapturing(const Stream& of) const override { return is_capturing(index_of(of.device()), handle_of(of)); }
  static bool is_capturing(int device, Handle stream) {
    OnDevice here(device);
    int status = 0;
    call("cuStreamIsCapturing", stream, &status);
    return status != 0;
  }
  void synchronizeStream(const Stream& of) const override {
    OnDevice here(index_of(of.device()));
    WithoutGil free;
    call("cuStreamSynchronize", handle_of(of));
  }
  void synchronizeDevice(const DeviceIndex index) const override {
    OnDevice here(index < 0 ? current_device : index);
    WithoutGil free;
    call("cuCtxSynchronize");
  }

  void record(void** event, const Stream& on, const DeviceIndex, const c10::EventFlag flag) const override {
    OnDevice here(index_of(on.device()));
    constexpr unsigned kDisableTiming = 2;
    if (*event == nullptr) call("cuEventCreate", event, flag == c10::EventFlag::PYTORCH_DEFAULT ? kDisableTiming : 0U);
    call("cuEventRecord", *event, handle_of(on));
  }
  void block(void* event, const Stream& on) const override {
    if (event == nullptr) return;
    OnDevice here(index_of(on.device()));
    call("cuStreamWaitEvent", handle_of(on), event, 0U);
  }
  bool queryEvent(void* event) const override { return event == nullptr || try_call("cuEventQuery", event) == 0; }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    WithoutGil free;
    call("cuEventSynchronize", event);
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    if (event != nullptr) try_call("cuEventDestroy_v2", event);
  }
  double elapsedTime(void* start, void* end, const DeviceIndex) const override {
    float milliseconds = 0;
    call("cuEventElapsedTime", &milliseconds, start, end);
    return milliseconds;
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const Stream& on) const override {
    if (memory.get() != nullptr) record_memory(reinterpret_cast<std::uint64_t>(memory.get()), on.id());
  }
};

}  // namespace guard
