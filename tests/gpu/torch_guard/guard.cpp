// Implements the C++ part of a torch device, on a driver with CUDA's function names. Tests compile
// it against a few of torch's headers; Python calls these functions.
#include <cstdio>
#include <stdexcept>

#include "memory.hpp"
#include "streams.hpp"

using namespace guard;

namespace {

// Returns the driver's error; for errors of this library, prints a message to stderr and returns
// -1.
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

}  // extern "C"
