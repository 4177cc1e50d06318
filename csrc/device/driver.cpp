// Loads CUDA's driver library and reports its errors.
#include "device/driver.hpp"

#include <dlfcn.h>

#include "base/error.hpp"

namespace ringcomm {

std::shared_ptr<const Driver> Driver::load(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) throw Error(ErrorKind::invalid, "the CUDA driver cannot be loaded: " + std::string(dlerror()));
  auto made = std::make_shared<Driver>();
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, symbol));
    if (!function)
      throw Error(ErrorKind::invalid, library + " has no function " + symbol + ": it is too old for ringcomm");
  };
#define RINGCOMM_LOAD(name, symbol, parameters) find(made->name, symbol);
  RINGCOMM_CUDA_FUNCTIONS(RINGCOMM_LOAD)
#undef RINGCOMM_LOAD
  if (const CuResult result = made->init(0))
    throw Error(ErrorKind::invalid, "the CUDA driver failed to start: " + made->text_of(result));
  return made;
}

std::string Driver::text_of(CuResult result) const {
  const char *name = nullptr, *text = nullptr;
  if (error_name(result, &name) != 0 || !name) return "CUDA error " + std::to_string(result);
  error_string(result, &text);
  return std::string(name) + (text ? " (" + std::string(text) + ")" : "");
}

void Driver::fail(CuResult result, const char* what) const {
  throw Error(ErrorKind::transport,
              std::string("the CUDA driver on this rank failed to ") + what + ": " + text_of(result));
}

}  // namespace ringcomm
