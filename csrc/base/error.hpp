// Defines the library's exception. The core throws it anywhere; the Cython layer translates it by
// `kind`.
// Errors before data moves: invalid, mismatch, left, joined, shut_down. The job continues and the
// next operation works.
// Later errors: peer_lost, transport. They are fatal: the channel that met one throws it again in
// every later call.
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
  const std::vector<int>& ranks() const noexcept { return ranks_; }  // the ranks that caused it; may be empty
  Error about(const std::string& name) const { return {kind_, "'" + name + "': " + what(), ranks_}; }
  bool fatal() const noexcept { return kind_ == ErrorKind::peer_lost || kind_ == ErrorKind::transport; }

 private:
  ErrorKind kind_;
  std::vector<int> ranks_;
};

// Makes an error of kind invalid, the commonest one. Takes its text in parts, as concat() does.
template <class... Parts>
Error invalid(const Parts&... parts) {
  return {ErrorKind::invalid, concat(parts...)};
}

}  // namespace ringcomm
