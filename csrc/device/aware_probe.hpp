// Whether an MPI that says so does take addresses of GPUs: a message from every rank's GPU to every other's, whose
// bytes are looked at on the host.
#pragma once

#include <memory>
#include <vector>

#include "device/chain.hpp"
#include "device/flow.hpp"
#include "device/side.hpp"

namespace ringcomm {

class AwareProbe final : public Chain {
 public:
  AwareProbe(Channel& channel, Device& device);
  ~AwareProbe() override { AwareProbe::abandon(); }
  bool possible() const { return memory_ != nullptr; }  // MPI says so, and there is memory to try it

  // On every rank, if it is possible on all: what comes of it is put into their abilities.
  void begin(std::vector<Ability>& all);
  void abandon() noexcept override;

 private:
  Progress exchange();
  Progress fetch();
  Progress tell();
  Progress prove();
  Stage::Slot& slot();

  Channel& channel_;
  Device& device_;
  const std::size_t nbytes_;
  DeviceRoom room_;
  std::byte* memory_ = nullptr;  // every rank's bytes
  std::unique_ptr<DeviceRoute> route_;
  std::shared_ptr<DeviceLocation> place_;
  std::vector<Ability>* all_ = nullptr;
  std::uint8_t worked_ = 0;
};

}  // namespace ringcomm
