// Typed errors. Thrown anywhere in the core, translated once at the Cython border by `kind`.
//   before data moves: invalid, mismatch, left, joined, shut_down. The job lives and the next operation works.
//   after:             peer_lost, transport. Fatal: the channel that met it answers every later call with it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace ringcomm {

enum class ErrorKind : int { internal, invalid, mismatch, left, joined, shut_down, peer_lost, transport, interrupted };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& what, std::vector<int> ranks = {})
      : std::runtime_error(what), kind_(kind), ranks_(std::move(ranks)) {}
  ErrorKind kind() const noexcept { return kind_; }
  const std::vector<int>& ranks() const noexcept { return ranks_; }  // whom it is about; may be empty
  Error about(const std::string& name) const { return {kind_, "'" + name + "': " + what(), ranks_}; }
  bool fatal() const noexcept { return kind_ == ErrorKind::peer_lost || kind_ == ErrorKind::transport; }

 private:
  ErrorKind kind_;
  std::vector<int> ranks_;
};

// The commonest kind. Its text in parts, as concat() takes them.
template <class... Parts>
Error invalid(const Parts&... parts) {
  return {ErrorKind::invalid, concat(parts...)};
}

}  // namespace ringcomm
