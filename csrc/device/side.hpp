// Holds a channel's state for calls on devices: staging memory, and the routes that its ranks can
// use. Ranks agree on the routes in the first call.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/call.hpp"
#include "base/task.hpp"
#include "collectives/choose.hpp"
#include "device/ability.hpp"
#include "device/device_location.hpp"
#include "device/stage.hpp"

namespace ringcomm {

// A route for calls on devices.
class DeviceRoute {
 public:
  explicit DeviceRoute(std::string name) { choice_.name = std::move(name); }
  virtual ~DeviceRoute() = default;
  const Choice& choice() const { return choice_; }  // for accounts and timelines
  // Returns true if the route supports the call. Depends only on values that are equal on all
  // ranks.
  virtual bool takes(const Call& call) const = 0;
  virtual std::unique_ptr<Task> start(Channel& channel, Call call, std::shared_ptr<DeviceLocation> place) = 0;

 private:
  Choice choice_;
};

class DeviceSide {
 public:
  explicit DeviceSide(std::shared_ptr<Node> node) : stage(std::move(node)) {}
  static DeviceSide& of(Channel& channel);

  // Returns true if `wanted`, the option's value, permits the route named `status`.
  static bool considers(std::string_view status, std::string_view wanted) {
    return wanted == "auto" || wanted == status;
  }

  bool agreed() const { return agreed_; }
  // Derives the routes from all ranks' abilities, indexed by rank. Throws Error(invalid) on every
  // rank if the route that options require is impossible.
  void agree(Channel& channel, Device& device, const std::vector<Ability>& all);
  DeviceRoute* route_for(const Call& call) const;  // null: through the host

  // Status of a route after agree(): its name, and why ranks cannot use it. Routes are listed best
  // first, without the one through the host.
  struct RouteStatus {
    std::string name, why_not;
  };
  const std::vector<RouteStatus>& route_statuses() const { return statuses_; }

  Stage stage;

 private:
  bool agreed_ = false;
  std::vector<std::unique_ptr<DeviceRoute>> routes_;  // best first
  std::vector<RouteStatus> statuses_;
};

Ability ability_of(Device& device);

// Starts a call on the route that the ranks have agreed on. In a channel's first call, the ranks
// agree first.
std::unique_ptr<Task> make_device_task(Channel& channel, Call call, std::shared_ptr<DeviceLocation> place);

}  // namespace ringcomm
