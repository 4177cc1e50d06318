// Makes the signature of a named operation, which must be equal on all ranks, and a placeholder
// operation from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/operation_state.hpp"

namespace ringcomm {

// FNV-1a hash of the values that must agree.
class Hash {
 public:
  Hash& add(const void* data, std::size_t nbytes) {
    for (std::size_t i = 0; i < nbytes; ++i)
      value_ = (value_ ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3ULL;
    return *this;
  }
  Hash& add(std::uint64_t value) { return add(&value, sizeof value); }
  Hash& add(const std::string& text) { return add(text.size()).add(text.data(), text.size()); }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

Descriptor signature_of(const NamedRequest& request);
OperationStatePtr make_placeholder(const std::string& name, const Descriptor& signature);
std::vector<std::uint64_t> extra_of(const NamedRequest& request);

}  // namespace ringcomm
