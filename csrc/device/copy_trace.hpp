// Records copies between a device and the host on the timeline. A copy ends when look() sees its
// event, by the host's clock. If several copies are under way in one direction, each begins when
// the one before it ends.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "device/copies.hpp"

namespace ringcomm {

class CopyTrace {
 public:
  CopyTrace(std::string_view name, int rank, int thread) : name_(name), rank_(rank), thread_(thread) {}

  // in() and out() store nothing unless events are recorded.
  void in(const Mark& mark, std::size_t nbytes) { from_device_.begin(mark, nbytes); }
  void out(const Mark& mark, std::size_t nbytes) { to_device_.begin(mark, nbytes); }
  // Records finished copies. Returns true if all copies have finished.
  bool look();

 private:
  struct Copy {
    Mark mark;
    std::int64_t begun_ns;
    std::size_t nbytes;
  };
  struct Direction {
    void begin(const Mark& mark, std::size_t nbytes);
    std::vector<Copy> in_flight;  // oldest first
    std::int64_t last_ns = 0;
  };
  bool look(Direction& direction, std::string_view category, int lane);

  const std::string_view name_;
  const int rank_, thread_;
  Direction from_device_, to_device_;
};

}  // namespace ringcomm
