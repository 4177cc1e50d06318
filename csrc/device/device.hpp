// Represents one GPU of this process: its primary context, which the process's frameworks use too,
// and streams, events and memory that are created once and reused.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "device/driver.hpp"

namespace ringcomm {

class Device;

// A point in the order of a stream. An empty event has already happened.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept : device_(other.device_), it_(std::exchange(other.it_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(it_, other.it_);
    return *this;
  }
  ~Event();  // returns the event to its device
  bool empty() const { return !it_; }
  bool happened() const;
  void wait() const noexcept;  // blocks the host
  // Blocks like wait(), but returns false after a time limit: the peer that has to signal the event
  // may have died.
  bool try_synchronize() const noexcept;
  void hold(CuStream stream) const;  // makes later work of the stream wait

 private:
  friend class Device;
  Event(Device& device, CuEvent it) : device_(&device), it_(it) {}
  Device* device_ = nullptr;
  CuEvent it_ = nullptr;
};

class Device {
 public:
  // Returns the process's device, created at the first call. It is never destroyed, because
  // frameworks free their memory at exit. Throws Error(invalid) for an unknown ordinal.
  static Device& get(int ordinal);
  // Loads the driver; call it once before get(). Further calls do nothing. Returns the number of
  // devices. Throws as Driver::load.
  static int open(const std::string& library, const std::string& nccl_library);
  static const std::string& nccl_library();

  const Driver& driver() const { return *driver_; }
  // Calls a driver function in this device's context. Throws Error(transport), which names `what`.
  template <class... Parameters>
  void call(const char* what, CuResult (*Driver::*function)(Parameters...),
            std::type_identity_t<Parameters>... arguments) const {
    const Current current(*this);
    driver_->check((driver_.get()->*function)(arguments...), what);
  }
  // Runs `act` in this device's context. Ignores errors of a lost driver, which accesses no memory.
  template <class Act>
  void unless_lost(Act&& act) const noexcept {
    try {
      const Current current(*this);
      act();
    } catch (const Error&) {
    }
  }
  int ordinal() const { return ordinal_; }
  CuStream from_device() const { return from_device_; }
  CuStream to_device() const { return to_device_; }
  std::array<char, 16> uuid() const;
  unsigned processors() const;  // a launch of a few blocks per processor fills the device
  Event record(CuStream stream);
  bool try_synchronize(CuStream stream) noexcept;  // waits for the stream's work, with Event::try_synchronize's limit
  void copy(void* to, const void* from, std::size_t nbytes, CuStream stream) const;
  CuPointer allocate(std::size_t nbytes);
  void free(CuPointer data) const noexcept;  // waits for the device
  // borrow() and keep() reuse memory, because free() waits for all work of the device. Kept memory
  // may be used again after the work that the stream holds now.
  CuPointer borrow(std::size_t nbytes);
  void keep(CuPointer data, std::size_t nbytes, CuStream stream) noexcept;
  // Runs `act` after the stream's present work: in this call, or when memory is next requested.
  void afterwards(CuStream stream, std::function<void()> act) noexcept;
  CuStream make_stream() const;
  void end_stream(CuStream stream) const noexcept;  // the stream's present work still runs
  void hold(CuStream stream, CuEvent event) const;

  // Registers a module of kernels by name, as PTX; for all devices, before the first is used.
  static void give_kernels(const std::string& module, std::string image);
  static bool has_kernels();
  CuFunction kernel(const std::string& module, const std::string& name);  // stays loaded
  // Returns false if refused (a limit on locked memory). Copies are then slower, but correct.
  bool pin(void* data, std::size_t nbytes);
  void unpin(void* data) noexcept;

  // Makes the device's context current in this thread during this object's lifetime. Driver calls
  // of the thread then do not disturb a CUDA graph that the program captures. Otherwise even an
  // event query by one of our threads ends the capture with an error.
  class Current {
   public:
    explicit Current(const Device& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Driver& driver_;
    int capture_mode_ = kCuCaptureRelaxed;  // holds the thread's mode meanwhile
  };

 private:
  friend class Event;
  Device(std::shared_ptr<const Driver> driver, int ordinal);
  void give_back(CuEvent event) noexcept;
  void run_what_is_due();

  const std::shared_ptr<const Driver> driver_;
  const int ordinal_;
  CuDevice device_ = 0;
  CuContext context_ = nullptr;
  CuStream from_device_ = nullptr, to_device_ = nullptr;
  std::atomic<bool> stuck_{false};  // a try_synchronize() timed out: later ones do not wait
  std::mutex mutex_;
  struct Spare {
    CuPointer data;
    std::size_t nbytes;
    Event free;
  };
  std::vector<CuEvent> events_;  // unused ones
  std::vector<Spare> spare_;
  std::vector<std::pair<Event, std::function<void()>>> later_;
  std::map<std::string, CuModule> modules_;
  std::map<std::string, CuFunction> kernels_;
};

}  // namespace ringcomm
