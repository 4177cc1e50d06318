// Defines the common first steps of every call: counting, faults, persistent errors, ignored calls,
// and random draws.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cuda_abi.h"
#include "quiet.hpp"

namespace standin {

// While any thread captures a graph, the driver refuses many calls of threads whose mode is not
// relaxed. A refused call also ends the capture.
extern std::atomic<int> captures;  // streams that are being captured into graphs
extern thread_local int capture_mode;
bool ends_a_capture();

extern thread_local bool aside;  // torch or CuPy itself makes this thread's calls

enum class Need {
  nothing,
  initialised,
  context,
  release,  // as context, but releases work even after the device is lost, so that leaks can be counted
};

class Settings {
 public:
  static Settings& get();  // never destroyed: threads may outlive main

  void read_environment();
  std::optional<CUresult> enter(const char* function, const void* caller, Need need);
  void faults(const char* list);
  void ignore(const char* list);
  bool takes_fault(const std::string& kind);  // counts the call
  long calls(const std::string& name);
  long places(const std::string& name);
  void reset_calls();

  std::uint64_t draw(std::uint64_t stream, std::uint64_t sequence) const;  // depends on the seed and the arguments only
  CUresult stuck() const { return stuck_.load(); }
  void stick(CUresult error);    // the first error stays
  static std::string kernels();  // read when needed: tests of one process may set it late

  std::atomic<bool> initialised{false};
  std::atomic<std::uint64_t> seed{0};
  std::atomic<long> delay_us{0};
  std::atomic<long> pageable_waits{0};
  Quiet quiet;
  int devices = 1;
  std::size_t memory = 0;
  std::string host;

 private:
  struct Fault {
    long at = 0, count = 0;  // at 0: every call
  };
  bool ignored(const std::string& name, const void* caller);
  bool takes_fault_locked(const std::string& kind);

  std::mutex mutex_;
  std::map<std::string, long> calls_, ignorable_;
  std::map<std::string, std::vector<const void*>> places_;
  std::map<std::string, Fault> faults_;
  std::set<std::string> ignore_;
  std::atomic<CUresult> stuck_{CUDA_SUCCESS};
};

long now_ns();
extern thread_local bool in_host_function;

struct Inside {
  Inside() { Settings::get().quiet.inside(true); }
  ~Inside() { Settings::get().quiet.inside(false); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

[[noreturn]] void violation(const std::string& text);

}  // namespace standin

// Begins every function of the API.
#define STANDIN_ENTER(need)                                                                               \
  const ::standin::Inside inside_call;                                                                    \
  if (const auto done =                                                                                   \
          ::standin::Settings::get().enter(__func__, __builtin_return_address(0), ::standin::Need::need)) \
  return *done
