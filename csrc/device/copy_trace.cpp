// Records finished copies in the trace.
#include "device/copy_trace.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/trace.hpp"

namespace ringcomm {

void CopyTrace::Direction::begin(const Mark& mark, std::size_t nbytes) {
  if (mark && trace().enabled()) in_flight.push_back({mark, now_ns(), nbytes});
}

bool CopyTrace::look() {
  const bool in = look(from_device_, "from device", kFromDeviceLane);
  return look(to_device_, "to device", kToDeviceLane) && in;
}

bool CopyTrace::look(Direction& direction, std::string_view category, int lane) {
  auto& in_flight = direction.in_flight;
  while (!in_flight.empty() && in_flight.front().mark->happened()) {
    const Copy& copy = in_flight.front();
    const std::int64_t now = now_ns(), begun = std::max(copy.begun_ns, direction.last_ns);
    trace().record(category, name_, {}, begun, now, copy.nbytes, rank_, thread_, lane);
    direction.last_ns = now;
    in_flight.erase(in_flight.begin());
  }
  return in_flight.empty();
}

}  // namespace ringcomm
