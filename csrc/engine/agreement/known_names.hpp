// The ids of names as a rank has read them in verdicts; the counterpart of the coordinator's
// IdCache. MemberSide uses it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "shm/descriptor.hpp"

namespace ringcomm {

class KnownNames {
 public:
  // 0: unknown, send name and signature
  std::uint32_t find(const std::string& name, const Descriptor& signature) const;
  const std::string& name_of(std::uint32_t id) const;  // throws Error(internal)
  std::uint64_t forgets() const { return forgets_; }   // results of find() are valid until it changes
  void learn(std::uint32_t id, const std::string& name, const Descriptor& signature);
  void forget(std::uint32_t id);

 private:
  struct Known {
    std::uint32_t id;
    Descriptor signature;
  };
  std::unordered_map<std::string, Known> by_name_;
  std::unordered_map<std::uint32_t, std::string> by_id_;
  std::uint64_t forgets_ = 0;
};

}  // namespace ringcomm
