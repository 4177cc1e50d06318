// Implements modules and kernels. Any image loads; a kernel is the function NAME_host of the
// library that STANDIN_KERNELS names.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "api_module.hpp"
#include "context.hpp"
#include "memory.hpp"
#include "queueing.hpp"
#include "settings.hpp"
#include "standin.h"

using namespace standin;

namespace {

struct Module {};

struct Function {
  std::string name;
  std::shared_ptr<Module> module;
  void (*run)(void**, unsigned, unsigned) = nullptr;
  std::vector<std::size_t> sizes;  // sizes of its parameters
};

constexpr std::size_t kParametersAtMost = 64;

thread_local const char* running = "a kernel";

Handles<Module, CUmodule>& modules() {
  static auto* const handles = new Handles<Module, CUmodule>("a module");
  return *handles;
}

Handles<Function, CUfunction>& functions() {
  static auto* const handles = new Handles<Function, CUfunction>("a function");
  return *handles;
}

const void* translate(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (address == nullptr) return nullptr;
  const auto range = Memory::get().find(at);
  if (!range && !Memory::get().is_device_address(at)) {
    violation(std::string(running) + " is given host memory that is not page-locked");
  }
  return Memory::get().reach(address, range ? 0 : 1, running);
}

void* kernels() {
  static void* const library = [] {
    void* const opened = ::dlopen(Settings::kernels().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      std::fprintf(stderr, "stand-in: STANDIN_KERNELS: %s\n", ::dlerror());
      return opened;
    }
    using Translate = const void* (*)(const void*);
    const auto tell = reinterpret_cast<void (*)(Translate)>(::dlsym(opened, "standin_set_translate"));
    if (tell != nullptr) tell(translate);
    return opened;
  }();
  return library;
}

CUresult load(CUmodule* module, const void* image) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = modules().add(std::make_shared<Module>());
  return CUDA_SUCCESS;
}

// A pointer parameter must be a live address. Structures may contain old pointers that the kernel
// does not use; the kernel translates those that it uses.
void require_live(const std::vector<std::byte>& value, const std::string& kernel) {
  std::uintptr_t address = 0;
  if (value.size() == sizeof address) std::memcpy(&address, value.data(), sizeof address);
  if (Memory::get().is_device_address(address)) {
    Memory::get().reach(reinterpret_cast<const void*>(address), 0, kernel.c_str());
  }
}

}  // namespace

long standin::live_modules() { return modules().live(); }

STANDIN_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  STANDIN_ENTER(context);
  return load(module, image);
}

STANDIN_API CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, int*, void**) {
  STANDIN_ENTER(context);
  return load(module, image);
}

STANDIN_API CUresult cuModuleUnload(CUmodule module) {
  STANDIN_ENTER(release);
  return modules().remove(module) == nullptr ? CUDA_ERROR_INVALID_HANDLE : Settings::get().stuck();
}

STANDIN_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  STANDIN_ENTER(context);
  const auto in = modules().find(module);
  if (in == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernels() == nullptr) return CUDA_ERROR_NOT_FOUND;
  auto made = std::make_shared<Function>();
  made->name = name;
  made->module = in;
  made->run = reinterpret_cast<decltype(made->run)>(::dlsym(kernels(), (made->name + "_host").c_str()));
  const auto sizes =
      reinterpret_cast<std::size_t (*)(std::size_t*)>(::dlsym(kernels(), (made->name + "_parameter_sizes").c_str()));
  if (made->run == nullptr || sizes == nullptr) return CUDA_ERROR_NOT_FOUND;
  made->sizes.resize(kParametersAtMost);
  made->sizes.resize(sizes(made->sizes.data()));
  *function = functions().add(std::move(made));
  return CUDA_SUCCESS;
}

STANDIN_API CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                    unsigned block_x, unsigned block_y, unsigned block_z, unsigned, CUstream stream,
                                    void** parameters, void** extra) {
  STANDIN_ENTER(context);
  const auto found = functions().find(function);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const auto in = find_stream(stream);
  if (in == nullptr || in->context != current_context()) return CUDA_ERROR_INVALID_HANDLE;
  if (grid_x == 0 || block_x == 0 || block_x > 1024 || grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 ||
      extra != nullptr || (parameters == nullptr && !found->sizes.empty())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (Settings::get().takes_fault("launch")) {
    Settings::get().stick(CUDA_ERROR_LAUNCH_FAILED);
    return CUDA_ERROR_LAUNCH_FAILED;
  }
  std::vector<std::vector<std::byte>> values;  // copies, because the caller's may be freed before the kernel runs
  for (std::size_t i = 0; i < found->sizes.size(); ++i) {
    const auto* const bytes = static_cast<const std::byte*>(parameters[i]);
    values.emplace_back(bytes, bytes + found->sizes[i]);
    require_live(values.back(), found->name);
  }
  return queue(stream, operation([=]() mutable {
                 if (Settings::get().takes_fault("kernel")) return Settings::get().stick(CUDA_ERROR_LAUNCH_FAILED);
                 std::vector<void*> pointers;
                 for (auto& value : values) pointers.push_back(value.data());
                 running = found->name.c_str();
                 found->run(pointers.data(), grid_x, block_x);
                 running = "a kernel";
               }));
}
