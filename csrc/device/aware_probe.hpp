// Tests MPI's support for GPU addresses, if MPI reports it. Every rank sends a message from its
// GPU's memory to every other rank's, and the host compares the bytes.
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

  // Starts the test. Every rank calls it, with all ranks' abilities. It does nothing unless the
  // test is possible on all ranks. Stores the result in `all`.
  void begin(std::vector<Ability>& all);
  void abandon() noexcept override;

 private:
  Progress exchange();
  Progress fetch();
  Progress send_result();
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
