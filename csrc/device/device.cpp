// Implements devices and events on CUDA's driver API.
#include "device/device.hpp"

#include <algorithm>
#include <chrono>
#include <new>
#include <thread>

#include "base/error.hpp"

namespace ringcomm {
namespace {

struct Devices {
  std::mutex mutex;
  std::shared_ptr<const Driver> driver;
  int count = 0;
  std::string nccl_library;
  std::map<int, Device*> known;
  std::map<std::string, std::string> images;  // PTX of the kernels, by module
};

Devices& devices() {
  static auto& all = *new Devices;  // never destroyed: events may be returned while the process ends
  return all;
}

}  // namespace

int Device::open(const std::string& library, const std::string& nccl_library) {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  if (!all.driver) {
    auto driver = Driver::load(library);
    driver->check(driver->device_count(&all.count), "count the devices");
    all.driver = std::move(driver);
    all.nccl_library = nccl_library;
  }
  return all.count;
}

const std::string& Device::nccl_library() { return devices().nccl_library; }

Device& Device::get(int ordinal) {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  if (ordinal < 0 || ordinal >= all.count) {
    throw Error(ErrorKind::invalid, "there is no GPU " + std::to_string(ordinal) + " here: the CUDA driver reports " +
                                        std::to_string(all.count));
  }
  Device*& found = all.known[ordinal];
  if (!found) found = new Device(all.driver, ordinal);
  return *found;
}

Device::Device(std::shared_ptr<const Driver> driver, int ordinal) : driver_(std::move(driver)), ordinal_(ordinal) {
  driver_->check(driver_->device_get(&device_, ordinal), "open the device");
  driver_->check(driver_->primary_retain(&context_, device_), "open the device's primary context");
  from_device_ = make_stream();
  to_device_ = make_stream();
}

CuStream Device::make_stream() const {
  CuStream made = nullptr;
  call("create a stream", &Driver::stream_create, &made, kCuStreamNonBlocking);
  return made;
}

CuPointer Device::allocate(std::size_t nbytes) {
  run_what_is_due();
  const Current current(*this);
  CuPointer made = 0;
  const CuResult result = driver_->memory_allocate(&made, nbytes);
  if (result == kCuOutOfMemory) throw std::bad_alloc();
  driver_->check(result, "allocate memory");
  return made;
}

void Device::free(CuPointer data) const noexcept {
  unless_lost([&] { driver_->memory_free(data); });
}

void Device::afterwards(CuStream stream, std::function<void()> act) noexcept {
  unless_lost([&] {
    Event passed = record(stream);
    {
      const std::lock_guard lock(mutex_);
      later_.emplace_back(std::move(passed), std::move(act));
    }
    run_what_is_due();
  });
}

void Device::run_what_is_due() {
  decltype(later_) due;
  {
    const std::lock_guard lock(mutex_);
    const auto is_due = std::ranges::partition(later_, [](const auto& action) { return !action.first.happened(); });
    due.assign(std::move_iterator(is_due.begin()), std::move_iterator(is_due.end()));
    later_.erase(is_due.begin(), is_due.end());
  }
  for (const auto& [passed, act] : due) act();
}

CuPointer Device::borrow(std::size_t nbytes) {
  run_what_is_due();
  std::vector<Spare> useless;
  {
    const std::lock_guard lock(mutex_);
    for (auto spare = spare_.begin(); spare != spare_.end(); ++spare) {
      if (spare->nbytes != nbytes || !spare->free.happened()) continue;
      useless.push_back(std::move(*spare));
      spare_.erase(spare);
      return useless[0].data;
    }
  }
  try {
    return allocate(nbytes);
  } catch (const std::bad_alloc&) {
    const std::lock_guard lock(mutex_);
    useless = std::move(spare_);
    spare_.clear();
  }
  for (const Spare& spare : useless) free(spare.data);
  return allocate(nbytes);
}

void Device::keep(CuPointer data, std::size_t nbytes, CuStream stream) noexcept {
  unless_lost([&] {
    Event free = record(stream);
    const std::lock_guard lock(mutex_);
    spare_.push_back({data, nbytes, std::move(free)});
  });
}

void Device::end_stream(CuStream stream) const noexcept {
  unless_lost([&] { driver_->stream_destroy(stream); });
}

void Device::hold(CuStream stream, CuEvent event) const {
  call("make a stream wait for an event", &Driver::stream_wait, stream, event, 0);
}

std::array<char, 16> Device::uuid() const {
  std::array<char, 16> bytes{};
  driver_->check(driver_->device_uuid(bytes.data(), device_), "return the device's UUID");
  return bytes;
}

unsigned Device::processors() const {
  constexpr int kMultiprocessors = 16;  // CUdevice_attribute
  int count = 0;
  driver_->check(driver_->device_attribute(&count, kMultiprocessors, device_), "return the number of multiprocessors");
  return static_cast<unsigned>(std::max(1, count));
}

void Device::give_kernels(const std::string& module, std::string image) {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  all.images[module] = std::move(image);
}

bool Device::has_kernels() {
  Devices& all = devices();
  const std::lock_guard lock(all.mutex);
  return !all.images.empty();
}

CuFunction Device::kernel(const std::string& module, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto known = kernels_.find(name);
  if (known != kernels_.end()) return known->second;
  const Current current(*this);
  CuModule& loaded = modules_[module];
  if (!loaded) {
    Devices& all = devices();
    const std::lock_guard images(all.mutex);
    driver_->check(driver_->module_load(&loaded, all.images.at(module).c_str()), "load ringcomm's kernels");
  }
  CuFunction function = nullptr;
  driver_->check(driver_->module_function(&function, loaded, name.c_str()), ("find the kernel " + name).c_str());
  return kernels_[name] = function;
}

Device::Current::Current(const Device& device) : driver_(device.driver()) {
  driver_.check(driver_.context_push(device.context_), "use the device's context");
  driver_.thread_capture_mode(&capture_mode_);
}

Device::Current::~Current() {
  CuContext before = nullptr;
  driver_.thread_capture_mode(&capture_mode_);
  driver_.context_pop(&before);
}

Event Device::record(CuStream stream) {
  const Current current(*this);
  CuEvent it = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      it = events_.back();
      events_.pop_back();
    }
  }
  if (!it) driver_->check(driver_->event_create(&it, kCuUntimed), "create an event");
  Event made(*this, it);
  driver_->check(driver_->event_record(it, stream), "record an event");
  return made;
}

bool Device::try_synchronize(CuStream stream) noexcept {
  bool synchronized = true;
  unless_lost([&] { synchronized = record(stream).try_synchronize(); });
  return synchronized;
}

void Device::copy(void* to, const void* from, std::size_t nbytes, CuStream stream) const {
  call("copy", &Driver::copy, device_address(to), device_address(from), nbytes, stream);
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
  unless_lost([&] { driver_->host_unregister(data); });
}

Event::~Event() {
  if (it_) device_->give_back(it_);
}

bool Event::happened() const {
  if (!it_) return true;
  const Device::Current current(*device_);
  const CuResult result = device_->driver().event_query(it_);
  if (result == kCuNotReady) return false;
  device_->driver().check(result, "complete earlier work");
  return true;
}

void Event::wait() const noexcept {
  if (it_) device_->unless_lost([&] { device_->driver().event_synchronize(it_); });
}

bool Event::try_synchronize() const noexcept {
  constexpr std::chrono::milliseconds kPatience(500);
  constexpr std::chrono::microseconds kNap(100);
  try {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!happened()) {
      if (std::chrono::steady_clock::now() > end) device_->stuck_ = true;
      if (device_->stuck_) return false;
      std::this_thread::sleep_for(kNap);
    }
  } catch (const Error&) {  // the driver is lost and accesses no memory
  }
  return true;
}

void Event::hold(CuStream stream) const {
  if (it_) device_->hold(stream, it_);
}

}  // namespace ringcomm
