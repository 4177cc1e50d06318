// Owns a file descriptor and closes it.
#pragma once

#include <utility>

namespace ringcomm {

class FileHandle {
 public:
  explicit FileHandle(int fd = -1) : fd_(fd) {}
  static FileHandle duplicate(int fd);  // close-on-exec; throws Error(invalid)
  ~FileHandle();
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace ringcomm
