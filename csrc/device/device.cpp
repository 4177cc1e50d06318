#include "device/device.hpp"

#include "base/error.hpp"

namespace ringcomm {
namespace {

struct Devices {
  std::mutex mutex;
  std::shared_ptr<const Driver> driver;
  int count = 0;
  std::map<int, Device*> known;
};

Devices& devices() {
  static auto& all = *new Devices;  // events may come back while the process ends
  return all;
}

}  // namespace

int Device::open(const std::string& library) {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  if (!all.driver) {
    auto driver = Driver::load(library);
    driver->check(driver->device_count(&all.count), "count its devices");
    all.driver = std::move(driver);
  }
  return all.count;
}

Device& Device::get(int ordinal) {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  if (ordinal < 0 || ordinal >= all.count) {
    throw Error(ErrorKind::invalid, "there is no GPU " + std::to_string(ordinal) + " here: the CUDA driver shows " +
                                        std::to_string(all.count));
  }
  Device*& found = all.known[ordinal];
  if (!found) found = new Device(all.driver, ordinal);
  return *found;
}

Device::Device(std::shared_ptr<const Driver> driver, int ordinal) : driver_(std::move(driver)), ordinal_(ordinal) {
  CuDevice device = 0;
  driver_->check(driver_->device_get(&device, ordinal), "find its device");
  driver_->check(driver_->primary_retain(&context_, device), "open the device's primary context");
  const Current current(*this);
  driver_->check(driver_->stream_create(&from_device_, kCuApart), "make a stream");
  driver_->check(driver_->stream_create(&to_device_, kCuApart), "make a stream");
}

Device::Current::Current(const Device& device) : driver_(device.driver()) {
  driver_.check(driver_.context_push(device.context_), "use the device's context");
}

Device::Current::~Current() {
  CuContext before = nullptr;
  driver_.context_pop(&before);
}

Event Device::record(CuStream stream) {
  CuEvent it = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      it = events_.back();
      events_.pop_back();
    }
  }
  if (!it) driver_->check(driver_->event_create(&it, kCuUntimed), "make an event");
  Event made(*this, it);
  driver_->check(driver_->event_record(it, stream), "record an event");
  return made;
}

void Device::give_back(CuEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  events_.push_back(event);
}

bool Device::pin(void* data, std::size_t nbytes) {
  const Current current(*this);
  return driver_->host_register(data, nbytes, kCuPortable) == 0;
}

void Device::unpin(void* data) noexcept {
  try {
    const Current current(*this);
    driver_->host_unregister(data);
  } catch (const Error&) {  // the driver is lost
  }
}

Event::~Event() {
  if (it_) device_->give_back(it_);
}

bool Event::happened() const {
  if (!it_) return true;
  const Device::Current current(*device_);
  const CuResult result = device_->driver().event_query(it_);
  if (result == kCuNotReady) return false;
  device_->driver().check(result, "go on");
  return true;
}

void Event::wait() const noexcept {
  if (!it_) return;
  try {
    const Device::Current current(*device_);
    device_->driver().event_synchronize(it_);
  } catch (const Error&) {  // the driver is lost, and touches nothing any more
  }
}

void Event::hold(CuStream stream) const {
  if (!it_) return;
  const Device::Current current(*device_);
  device_->driver().check(device_->driver().stream_wait(stream, it_, 0), "let a stream wait");
}

}  // namespace ringcomm
