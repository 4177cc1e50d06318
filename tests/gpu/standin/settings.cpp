// Implements settings.hpp: reads the environment, counts calls, applies faults, and draws numbers.
#include "settings.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "context.hpp"
#include "standin.h"

namespace standin {
namespace {

std::vector<std::string> split(const char* list) {
  std::vector<std::string> parts;
  std::istringstream text(list == nullptr ? "" : list);
  for (std::string part; std::getline(text, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

const char* text_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

long number_of(const char* variable, long otherwise) {
  const char* const value = text_of(variable);
  return *value == 0 ? otherwise : std::atol(value);
}

std::string plain(std::string name) {  // without the version suffix that cuda.h hides
  if (name.size() > 3 && name[name.size() - 3] == '_' && name[name.size() - 2] == 'v') name.resize(name.size() - 3);
  return name;
}

}  // namespace

thread_local bool in_host_function = false;
std::atomic<int> captures{0};
thread_local int capture_mode = 0;  // CU_STREAM_CAPTURE_MODE_GLOBAL
bool ends_a_capture() { return captures > 0 && capture_mode != 2 && !aside; }

thread_local bool aside = false;

long now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void violation(const std::string& text) {
  std::fprintf(stderr, "stand-in: VIOLATION: %s\n", text.c_str());
  std::fflush(stderr);
  std::abort();
}

Settings& Settings::get() {
  static Settings* const settings = new Settings;
  return *settings;
}

void Settings::read_environment() {
  const long rank = number_of("PMI_RANK", number_of("OMPI_COMM_WORLD_RANK", 0));
  seed = static_cast<std::uint64_t>(number_of("STANDIN_SEED", 0)) * 4096 + static_cast<std::uint64_t>(rank);
  delay_us = number_of("STANDIN_DELAY_US", 0);
  devices = static_cast<int>(number_of("STANDIN_DEVICES", 1));
  memory = static_cast<std::size_t>(number_of("STANDIN_MEMORY", 8192)) << 20;
  host = text_of("STANDIN_HOST");
  if (*text_of("STANDIN_FAULT") != 0) faults(text_of("STANDIN_FAULT"));
  if (*text_of("STANDIN_IGNORE") != 0) ignore(text_of("STANDIN_IGNORE"));
}

std::optional<CUresult> Settings::enter(const char* function, const void* caller, Need need) {
  const std::string name = plain(function);
  const std::lock_guard lock(mutex_);
  if (!aside) {
    ++calls_[name];
    ++calls_[""];
    auto& places = places_[name];
    if (std::find(places.begin(), places.end(), caller) == places.end()) places.push_back(caller);
  }
  if (in_host_function) {
    std::fprintf(stderr, "stand-in: %s was called in a host function\n", function);
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (takes_fault_locked("lost")) stick(CUDA_ERROR_DEVICE_UNAVAILABLE);
  if (need != Need::nothing && !initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (stuck_ != CUDA_SUCCESS && need != Need::release && need != Need::nothing) return stuck_.load();
  if (need == Need::context || need == Need::release) {
    Context* const context = current_context();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->retained == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (ignored(name, caller)) return CUDA_SUCCESS;
  return std::nullopt;
}

bool Settings::ignored(const std::string& name, const void* caller) {
  if (ignore_.empty() || aside) return false;
  const long count = ++ignorable_[name];
  const auto& places = places_[name];
  const long place = std::find(places.begin(), places.end(), caller) - places.begin() + 1;
  return ignore_.contains(name + ":*") || ignore_.contains(name + ":" + std::to_string(count)) ||
         ignore_.contains(name + "@" + std::to_string(place));
}

std::string Settings::kernels() { return text_of("STANDIN_KERNELS"); }

void Settings::faults(const char* list) {
  const std::lock_guard lock(mutex_);
  faults_.clear();
  stuck_ = CUDA_SUCCESS;
  for (const std::string& part : split(list)) {
    const auto colon = part.find(':');
    faults_[part.substr(0, colon)].at = colon == std::string::npos ? 0 : std::atol(part.c_str() + colon + 1);
  }
}

void Settings::ignore(const char* list) {
  const std::lock_guard lock(mutex_);
  ignorable_.clear();
  const auto parts = split(list);
  ignore_ = std::set<std::string>(parts.begin(), parts.end());
}

bool Settings::takes_fault(const std::string& kind) {
  const std::lock_guard lock(mutex_);
  return takes_fault_locked(kind);
}

bool Settings::takes_fault_locked(const std::string& kind) {
  const auto found = faults_.find(kind);
  if (found == faults_.end() || aside) return false;
  ++found->second.count;
  return found->second.at == 0 || found->second.count == found->second.at;
}

long Settings::calls(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

long Settings::places(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return static_cast<long>(places_[name].size());
}

void Settings::reset_calls() {
  const std::lock_guard lock(mutex_);
  calls_.clear();
  pageable_waits = 0;
}

std::uint64_t Settings::draw(std::uint64_t stream, std::uint64_t sequence) const {
  return mix(mix(mix(seed.load()) ^ stream) ^ sequence);
}

void Settings::stick(CUresult error) {
  CUresult none = CUDA_SUCCESS;
  stuck_.compare_exchange_strong(none, error);
}

}  // namespace standin
