// Implements copies between buffers and host memory, for devices and for hosts.
#include "device/copies.hpp"

#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace ringcomm {
namespace {

class HostCopies final : public Copies {
 public:
  bool in_behind(const Event&) override { return false; }
  void in(void* host, const void* buffer, std::size_t nbytes) override { std::memcpy(host, buffer, nbytes); }
  void out(void* buffer, const void* host, std::size_t nbytes) override { std::memcpy(buffer, host, nbytes); }
  Mark mark_in() override { return nullptr; }
  Mark mark_out() override { return nullptr; }
  void finish() override {}
  bool give_up() noexcept override { return true; }
  Device* device() const override { return nullptr; }
};

class DeviceCopies final : public Copies {
 public:
  explicit DeviceCopies(std::shared_ptr<DeviceLocation> place) : place_(std::move(place)), device_(place_->device()) {}
  bool in_behind(const Event& event) override {
    event.hold(device_.from_device());
    return true;
  }
  void in(void* host, const void* buffer, std::size_t nbytes) override {
    hold_once(device_.from_device());
    device_.copy(host, buffer, nbytes, device_.from_device());
  }
  void out(void* buffer, const void* host, std::size_t nbytes) override {
    hold_once(device_.to_device());
    device_.copy(buffer, host, nbytes, device_.to_device());
  }
  Mark mark_in() override { return mark(device_.from_device()); }
  Mark mark_out() override { return mark(device_.to_device()); }
  void finish() override { place_->finish(mark_out()); }
  bool give_up() noexcept override {
    const bool in = device_.try_synchronize(device_.from_device());
    return device_.try_synchronize(device_.to_device()) && in;
  }
  Device* device() const override { return &device_; }

 private:
  // Makes the first stream that is used wait for the buffers. The other stream is used only after a
  // copy on the first one has ended, so the buffers are ready then.
  void hold_once(CuStream stream) {
    if (!std::exchange(held_, true)) place_->hold(stream);
  }
  Mark mark(CuStream stream) { return std::make_shared<const Event>(device_.record(stream)); }

  const std::shared_ptr<DeviceLocation> place_;
  Device& device_;
  bool held_ = false;
};

}  // namespace

std::unique_ptr<Copies> device_copies(std::shared_ptr<DeviceLocation> place) {
  return std::make_unique<DeviceCopies>(std::move(place));
}
std::unique_ptr<Copies> host_copies() { return std::make_unique<HostCopies>(); }

}  // namespace ringcomm
