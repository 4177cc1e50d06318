// Implements quiet.hpp: uses CPU times and thread states to measure how long no call was made.
#include "quiet.hpp"

#include <time.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "settings.hpp"

namespace standin {
namespace {

long cpu_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return now.tv_sec * 1000000000L + now.tv_nsec;
}

bool asleep(const std::string& folder) {
  std::ifstream file(folder + "stat");
  std::string text;
  std::getline(file, text);
  const auto end = text.rfind(')');
  return end == std::string::npos || text[end + 2] != 'R';
}

}  // namespace

long process_cpu_ns() { return cpu_ns(CLOCK_PROCESS_CPUTIME_ID); }

void Quiet::inside(bool yes) {
  inside_ += yes ? 1 : -1;
  if (Settings::get().delay_us.load() > 0) called();
}

void Quiet::called() {
  static thread_local const int self = ::gettid();
  called_ns_ = now_ns();
  cpu_ns_ = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
  thread_ = self;
  asleep_since_ns_ = 0;
}

bool Quiet::lasts(long nanoseconds) {
  const long now = now_ns();
  if (inside_ > 0 || now - called_ns_ < nanoseconds) return false;
  const std::string folder = "/proc/self/task/" + std::to_string(thread_) + "/";
  if (!asleep(folder)) {
    asleep_since_ns_ = 0;
    long cpu = 0;
    return std::ifstream(folder + "schedstat") >> cpu && cpu - cpu_ns_ >= nanoseconds;
  }
  long since = 0;
  if (asleep_since_ns_.compare_exchange_strong(since, now)) return false;
  return now - since >= nanoseconds;
}

}  // namespace standin
