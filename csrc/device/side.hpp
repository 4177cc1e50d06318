// What a channel keeps for calls on devices: memory on their way through the host, and the faster ways that its ranks
// can go, of which they tell each other in the first such call.
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

// A way for calls on devices.
class DeviceRoute {
 public:
  explicit DeviceRoute(std::string name) { choice_.name = std::move(name); }
  virtual ~DeviceRoute() = default;
  const Choice& choice() const { return choice_; }  // as accounts and timelines have it
  // Whether such calls go this way. Depends only on what every rank knows to be equal.
  virtual bool takes(const Call& call) const = 0;
  virtual std::unique_ptr<Task> start(Channel& channel, Call call, std::shared_ptr<DeviceLocation> place) = 0;

 private:
  Choice choice_;
};

class DeviceSide {
 public:
  explicit DeviceSide(std::shared_ptr<Node> node) : stage(std::move(node)) {}
  static DeviceSide& of(Channel& channel);

  // Whether `wanted`, the option's value, allows for a way.
  static bool considers(std::string_view status, std::string_view wanted) {
    return wanted == "auto" || wanted == status;
  }

  bool agreed() const { return agreed_; }
  // All ranks' abilities, by rank. Throws Error(invalid) on every rank if they cannot go the way that options ask for.
  void agree(Channel& channel, Device& device, const std::vector<Ability>& all);
  DeviceRoute* route_for(const Call& call) const;  // null: by way of the host

  // Once they have agreed: the ways beside that through the host, the best first, each with why ranks cannot go it.
  struct RouteStatus {
    std::string name, why_not;
  };
  const std::vector<RouteStatus>& route_statuses() const { return statuses_; }

  Stage stage;

 private:
  bool agreed_ = false;
  std::vector<std::unique_ptr<DeviceRoute>> routes_;  // the best first
  std::vector<RouteStatus> statuses_;
};

Ability ability_of(Device& device);

// On the way that the ranks have agreed on, which they do before the first call of a channel.
std::unique_ptr<Task> make_device_task(Channel& channel, Call call, std::shared_ptr<DeviceLocation> place);

}  // namespace ringcomm
