// Provides memory into which messages are packed and received. The pool keeps buffers for the next
// call, because new memory costs a page fault per 4 KB.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace ringcomm {

// A buffer of the pool, aligned to 64 bytes. The destructor returns it to the pool.
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
  void require(std::size_t nbytes) {  // contents are lost if it grows
    if (nbytes > capacity()) *this = Staging(nbytes);
  }
  // Leaks the buffer, because a send that could not be cancelled may still read it.
  void leak() noexcept;

 private:
  std::byte* data_ = nullptr;
  unsigned size_class_ = 0;  // log2 of the capacity
};

class StagingPool {
 public:
  std::byte* take(unsigned size_class);
  void give(std::byte* data, unsigned size_class) noexcept;
  void leak(std::byte* data) noexcept;

 private:
  static constexpr std::size_t kMostKept = std::size_t{256} << 20;  // bytes of idle buffers

  std::mutex mutex_;
  std::array<std::vector<std::byte*>, 64> idle_;
  std::vector<std::byte*> leaked_;  // kept in a list, so that leak checkers see them as reachable
  std::size_t kept_ = 0;
};

StagingPool& staging_pool();  // the process's pool; never destroyed, because buffers may outlive all other objects

}  // namespace ringcomm
