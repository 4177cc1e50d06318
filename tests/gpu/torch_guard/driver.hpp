// Finds the driver's functions by name, and keeps each thread's device.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdint>
#include <vector>

namespace guard {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using Handle = void*;

inline void* library = nullptr;
inline std::vector<Handle> contexts;  // one per device
inline thread_local int current_device = 0;
inline thread_local int bound_device = -1;  // the device whose context is current on this thread

// Excludes calls that torch and CuPy themselves make: the stand-in neither counts them nor makes
// them fail.
class Aside {
 public:
  Aside() { set(1); }
  ~Aside() { set(0); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  static void set(int on) {
    if (auto* function = reinterpret_cast<void (*)(int)>(dlsym(library, "standin_aside"))) function(on);
  }
};

template <class... Arguments>
int try_call(const char* name, Arguments... arguments) {
  auto* function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library, name));
  TORCH_CHECK(function != nullptr, "the driver has no ", name);
  const Aside aside;
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

inline void bind(int device) {
  if (bound_device == device) return;
  TORCH_CHECK(device >= 0 && device < static_cast<int>(contexts.size()), "there is no device ", device);
  call("cuCtxSetCurrent", contexts[static_cast<std::size_t>(device)]);
  bound_device = device;
}

// Selects a device for the current scope, and restores this thread's context afterwards.
class OnDevice {
 public:
  explicit OnDevice(int device) { bind(device); }
  ~OnDevice() {
    if (bound_device != current_device) bind(current_device);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};
}  // namespace guard
