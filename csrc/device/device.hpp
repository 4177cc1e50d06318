// One GPU as this process uses it: its primary context, which the frameworks of the process share, and what is made in
// it once: streams for copies, events.
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

// A point in the order of a stream. Empty: it has been passed.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept : device_(other.device_), it_(std::exchange(other.it_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(it_, other.it_);
    return *this;
  }
  ~Event();  // its device has it for another
  bool empty() const { return !it_; }
  bool happened() const;
  void wait() const noexcept;        // here
  bool settle() const noexcept;      // the same, but not for ever: false if a peer that it depends on must have died
  void hold(CuStream stream) const;  // what comes next on the stream waits

 private:
  friend class Device;
  Event(Device& device, CuEvent it) : device_(&device), it_(it) {}
  Device* device_ = nullptr;
  CuEvent it_ = nullptr;
};

class Device {
 public:
  // The process's, made when first asked for, and never ended: frameworks free what they have at exit. Throws
  // Error(invalid) for an ordinal of none.
  static Device& get(int ordinal);
  // Once, before any is asked for; again: nothing happens. How many there are. Throws as Driver::load.
  static int open(const std::string& library, const std::string& nccl_library);
  static const std::string& nccl_library();

  const Driver& driver() const { return *driver_; }
  // One of the driver's functions, in this device's context. Throws Error(transport) that says what failed.
  template <class... Parameters>
  void call(const char* what, CuResult (*Driver::*function)(Parameters...),
            std::type_identity_t<Parameters>... arguments) const {
    const Current current(*this);
    driver_->check((driver_.get()->*function)(arguments...), what);
  }
  // In its context as well; a driver that is lost touches nothing any more.
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
  unsigned processors() const;  // a launch of a few blocks for each fills the device
  Event record(CuStream stream);
  bool settle(CuStream stream) noexcept;  // what it holds, as Event has it
  void copy(void* to, const void* from, std::size_t nbytes, CuStream stream) const;
  CuPointer allocate(std::size_t nbytes);
  void free(CuPointer data) const noexcept;  // waits for the device
  // Memory that is kept for others when it is no longer used, for to free it would wait for all the device: it may be
  // used again behind what the stream holds now.
  CuPointer borrow(std::size_t nbytes);
  void keep(CuPointer data, std::size_t nbytes, CuStream stream) noexcept;
  // Runs it once the stream has done what it holds now: here, or when memory is next asked for.
  void afterwards(CuStream stream, std::function<void()> act) noexcept;
  CuStream make_stream() const;
  void end_stream(CuStream stream) const noexcept;  // what it holds still runs
  void hold(CuStream stream, CuEvent event) const;

  // A module of kernels by name, as the driver takes it (PTX); for all devices, before any is used.
  static void give_kernels(const std::string& module, std::string image);
  static bool has_kernels();
  CuFunction kernel(const std::string& module, const std::string& name);  // which stays loaded
  // False: refused (a limit on locked memory); copies are slower then, and right.
  bool pin(void* data, std::size_t nbytes);
  void unpin(void* data) noexcept;

  // Makes its context the thread's while this lives. Driver calls meanwhile do no harm to a CUDA graph that the
  // program captures: otherwise even an event query by one of our threads ends the capture with an error.
  class Current {
   public:
    explicit Current(const Device& device);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Driver& driver_;
    int capture_mode_ = kCuCaptureRelaxed;  // the thread's own, while this lives
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
  std::atomic<bool> stuck_{false};  // somebody has waited in vain: nobody does again
  std::mutex mutex_;
  struct Spare {
    CuPointer data;
    std::size_t nbytes;
    Event free;
  };
  std::vector<CuEvent> events_;  // free ones
  std::vector<Spare> spare_;
  std::vector<std::pair<Event, std::function<void()>>> later_;
  std::map<std::string, CuModule> modules_;
  std::map<std::string, CuFunction> kernels_;
};

}  // namespace ringcomm
