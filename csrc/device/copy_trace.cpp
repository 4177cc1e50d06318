// Records finished copies in the trace.
#include "device/copy_trace.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/trace.hpp"

namespace ringcomm {

void CopyTrace::Direction::begin(const Mark& mark, std::size_t nbytes) {
  if (mark && trace().enabled()) under_way.push_back({mark, now_ns(), nbytes});
}

bool CopyTrace::look() {
  const bool in = look(from_device_, "from device", kFromDeviceLane);
  return look(to_device_, "to device", kToDeviceLane) && in;
}

bool CopyTrace::look(Direction& direction, std::string_view category, int lane) {
  auto& under_way = direction.under_way;
  while (!under_way.empty() && under_way.front().mark->happened()) {
    const Copy& copy = under_way.front();
    const std::int64_t now = now_ns(), begun = std::max(copy.begun_ns, direction.last_ns);
    trace().record(category, name_, {}, begun, now, copy.nbytes, rank_, thread_, lane);
    direction.last_ns = now;
    under_way.erase(under_way.begin());
  }
  return under_way.empty();
}

}  // namespace ringcomm
