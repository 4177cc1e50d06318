// Memory that messages are packed into and arrive in. Buffers are kept for the next call, for fresh memory costs a page
// fault per 4 KB.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace ringcomm {

// A buffer of the pool, aligned to 64 bytes; goes back to it at the end.
class Staging {
 public:
  Staging() = default;
  explicit Staging(std::size_t nbytes);
  Staging(Staging&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_class_(other.size_class_) {}
  Staging& operator=(Staging&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_class_, other.size_class_);
    return *this;
  }
  ~Staging();

  std::byte* data() const { return data_; }
  std::size_t capacity() const { return data_ ? std::size_t{1} << size_class_ : 0; }
  void require(std::size_t nbytes) {  // contents are lost if it must grow
    if (nbytes > capacity()) *this = Staging(nbytes);
  }
  void strand() noexcept;  // never to be used or freed again: a send that could not be cancelled may still read it

 private:
  std::byte* data_ = nullptr;
  unsigned size_class_ = 0;  // log2 of the capacity
};

class StagingPool {
 public:
  std::byte* take(unsigned size_class);
  void give(std::byte* data, unsigned size_class) noexcept;
  void strand(std::byte* data) noexcept;

 private:
  static constexpr std::size_t kMostKept = std::size_t{256} << 20;  // bytes of idle buffers

  std::mutex mutex_;
  std::array<std::vector<std::byte*>, 64> idle_;
  std::vector<std::byte*> stranded_;  // listed so that they count as reachable
  std::size_t kept_ = 0;
};

StagingPool& staging_pool();  // the process's; never destroyed, for buffers may outlive everything

}  // namespace ringcomm
