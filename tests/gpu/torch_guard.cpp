// What torch asks of a device in C++ (c10::impl::DeviceGuardImplInterface), on a driver with CUDA's names: current device and stream of
// each thread, streams and events. Autograd uses it: a node of backward runs on the stream of its forward, and gradients that cross
// streams are waited for by events. Compiled in tests against a few of torch's headers; Python calls the functions at the end.
// A stream's id is its driver handle, 0 the default stream. What waits gives the GIL away, for stream threads run Python.

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;
using Handle = void*;

void* library = nullptr;
std::vector<Handle> contexts;  // one a device
void (*record_memory)(std::uint64_t address, std::int64_t stream) = nullptr;
std::uint64_t (*allocate_memory)(int device, std::uint64_t nbytes) = nullptr;
void (*free_memory)(std::uint64_t address) = nullptr;  // null once Python ends
thread_local int current_device = 0;
thread_local int bound_device = -1;  // whose context the driver has as this thread's
thread_local std::vector<std::int64_t> current_streams;

template <class... Arguments>
int try_call(const char* name, Arguments... arguments) {
  auto* function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  TORCH_CHECK(function != nullptr, "the driver has no ", name);
  return function(arguments...);
}

template <class... Arguments>
void call(const char* name, Arguments... arguments) {
  const int error = try_call(name, arguments...);
  TORCH_CHECK(error == 0, name, " failed with error ", error);
}

class WithoutGil {
 public:
  WithoutGil() {
    auto* held = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
    auto* save = reinterpret_cast<void* (*)()>(dlsym(RTLD_DEFAULT, "PyEval_SaveThread"));
    if (held != nullptr && held() != 0) state_ = save();
  }
  ~WithoutGil() {
    auto* restore = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"));
    if (state_ != nullptr) restore(state_);
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* state_ = nullptr;
};

void bind(int device) {
  if (bound_device == device) return;
  TORCH_CHECK(device >= 0 && device < static_cast<int>(contexts.size()), "there is no device ", device);
  call("cuCtxSetCurrent", contexts[static_cast<std::size_t>(device)]);
  bound_device = device;
}

// Runs what follows on a device, and leaves this thread's context as it was.
class OnDevice {
 public:
  explicit OnDevice(int device) { bind(device); }
  ~OnDevice() {
    if (bound_device != current_device) bind(current_device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};

std::int64_t& stream_of(int device) {
  current_streams.resize(contexts.size(), 0);
  return current_streams.at(static_cast<std::size_t>(device));
}

Handle handle_of(const Stream& stream) { return reinterpret_cast<Handle>(stream.id()); }

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
  // As torch.cuda does: streams come from a pool of 32 a device, in turn, and are never destroyed.
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

// torch.UntypedStorage(n, device=...) and all tensors; what is done with freed memory is decided in torch_memory.py.
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

// Memory of the host that the driver knows, so that copies need not wait: Tensor.pin_memory().
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

// Gives the driver's error, or -1 with a word on stderr for what is ours.
template <class Function>
int guarded(Function function) {
  try {
    return function();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "torch_guard: %s\n", error.what());
    return -1;
  }
}

}  // namespace

extern "C" {

int guard_start(const char* path, std::uint64_t (*allocate)(int, std::uint64_t), void (*free)(std::uint64_t),
                void (*record)(std::uint64_t, std::int64_t)) {
  return guarded([&] {
    library = dlopen(path, RTLD_NOW);
    TORCH_CHECK(library != nullptr, dlerror());
    allocate_memory = allocate;
    free_memory = free;
    record_memory = record;
    int count = 0;
    call("cuInit", 0U);
    call("cuDeviceGetCount", &count);
    for (int number = 0; number < count; ++number) {
      int device = 0;
      Handle context = nullptr;
      call("cuDeviceGet", &device, number);
      call("cuDevicePrimaryCtxRetain", &context, device);
      contexts.push_back(context);
    }
    c10::impl::registerDeviceGuard(DeviceType::PrivateUse1, new Guard());
    at::RegisterPrivateUse1HooksInterface(new Hooks());
    c10::SetAllocator(DeviceType::PrivateUse1, new Memory());
    return 0;
  });
}

void guard_end() { free_memory = nullptr; }

int guard_device_count() { return static_cast<int>(contexts.size()); }
int guard_current_device() { return current_device; }
std::int64_t guard_current_stream(int device) { return stream_of(device); }
void guard_set_stream(int device, std::int64_t stream) { stream_of(device) = stream; }
int guard_set_device(int device) {
  return guarded([&] {
    bind(device);
    current_device = device;
    return 0;
  });
}

int guard_launch(int device, std::int64_t stream, void (*function)(void*), void* argument) {
  return guarded([&] {
    OnDevice here(device);
    return try_call("cuLaunchHostFunc", reinterpret_cast<Handle>(stream), function, argument);
  });
}

int guard_is_capturing() {
  return guarded([] {
    return static_cast<int>(Guard::is_capturing(current_device, reinterpret_cast<Handle>(stream_of(current_device))));
  });
}

int guard_synchronize(int device, std::int64_t stream) {
  return guarded([&] {
    OnDevice here(device);
    return try_call("cuStreamSynchronize", reinterpret_cast<Handle>(stream));
  });
}

int guard_synchronize_device(int device) {
  return guarded([&] {
    OnDevice here(device);
    return try_call("cuCtxSynchronize");
  });
}

int guard_allocate(int device, std::uint64_t nbytes, std::uint64_t* address) {
  return guarded([&] {
    OnDevice here(device);
    return try_call("cuMemAlloc_v2", address, static_cast<std::size_t>(nbytes));
  });
}

int guard_free(int device, std::uint64_t address) {
  return guarded([&] {
    OnDevice here(device);
    return try_call("cuMemFree_v2", address);
  });
}

void* guard_host(std::uint64_t address) {
  auto* host = reinterpret_cast<void* (*)(std::uint64_t)>(dlsym(library, "standin_host"));
  return host == nullptr ? nullptr : host(address);
}

// A new event recorded on a stream: what memory that is freed there waits for before it is used anew.
int guard_mark(int device, std::int64_t stream, void** event) {
  return guarded([&] {
    OnDevice here(device);
    constexpr unsigned kDisableTiming = 2;
    call("cuEventCreate", event, kDisableTiming);
    return try_call("cuEventRecord", *event, reinterpret_cast<Handle>(stream));
  });
}

// Whether it has come; an event that has is destroyed.
int guard_passed(void* event) {
  if (try_call("cuEventQuery", event) != 0) return 0;
  try_call("cuEventDestroy_v2", event);
  return 1;
}
}
