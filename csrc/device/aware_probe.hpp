// Tests if an MPI that reports support for addresses of GPUs has it. Every rank's GPU sends a
// message to every other GPU, and the host compares the bytes.
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
  bool possible() const { return memory_ != nullptr; }  // MPI reports support, and memory for the test is available

  // Starts the test. Every rank calls it if the test is possible on all ranks. The result is stored
  // in their abilities.
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
  std::byte* memory_ = nullptr;  // all ranks' bytes
  std::unique_ptr<DeviceRoute> route_;
  std::shared_ptr<DeviceLocation> place_;
  std::vector<Ability>* all_ = nullptr;
  std::uint8_t worked_ = 0;
};

}  // namespace ringcomm
