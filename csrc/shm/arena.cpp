// Creates arenas as memfds, maps the arenas of all ranks of the host, and backs ranges of them with
// memory.
#include "shm/arena.hpp"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <string>

#include "base/error.hpp"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace ringcomm {
namespace {

constexpr std::uint64_t kMagic = 0x72696e67636f6d31;
// Bytes per fallocate, so that a signal interrupts only one piece.
constexpr std::uint64_t kChunk = std::uint64_t{64} << 20;
constexpr std::uint64_t kWorthAsking = std::uint64_t{16} << 20;  // bytes; smaller ranges are backed without a check

std::string reason(int error) { return std::strerror(error); }

// Calls memfd_create through syscall(), because a wheel may be built against an older libc. Kernels
// that know MFD_NOEXEC_SEAL may require it.
int create_memfd() {
  long fd = ::syscall(SYS_memfd_create, "ringcomm", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) fd = ::syscall(SYS_memfd_create, "ringcomm", MFD_CLOEXEC);
  if (fd >= 0) return static_cast<int>(fd);
  if (errno == ENOSYS) throw invalid("this kernel has no memfd_create (Linux 3.17), which shared memory needs");
  throw invalid("memfd_create: ", reason(errno));
}

// Returns the bytes that the system can still provide. fallocate does not refuse larger requests:
// the kernel kills processes later instead.
std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::uint64_t kilobytes = 0, value = 0;
  bool known = false;
  for (std::string key, rest; file >> key >> value && std::getline(file, rest);) {
    if (key != "MemAvailable:" && key != "SwapFree:") continue;
    known = true;
    kilobytes += value;
  }
  return known ? kilobytes * 1024 : std::numeric_limits<std::uint64_t>::max();
}

void advise(void* base, std::size_t nbytes) {  // refusals do no harm
  ::madvise(base, nbytes, MADV_HUGEPAGE);
  ::madvise(base, nbytes, MADV_DONTDUMP);  // a core dump would contain the complete reserve
}

void require_arena(int fd, std::size_t index) {
  struct stat status{};
  const std::string which = concat("file descriptor ", fd, " of local rank ", index);
  if (::fstat(fd, &status) != 0) throw invalid(which, ": ", reason(errno));
  if (status.st_size < static_cast<off_t>(kHeapBegin)) throw invalid(which, " is not shared memory of ringcomm");
}

}  // namespace

FileHandle FileHandle::duplicate(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw invalid("cannot duplicate file descriptor ", fd, ": ", reason(errno));
  return FileHandle(copy);
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

int back_with_memory(int fd, std::uint64_t begin, std::uint64_t end) {
  if (end - begin >= kWorthAsking && end - begin > available_memory()) return ENOMEM;
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t next = std::min(end, at + kChunk);
    if (::fallocate(fd, 0, static_cast<off_t>(at), static_cast<off_t>(next - at)) == 0) {
      at = next;
    } else if (errno != EINTR) {
      const int error = errno;
      give_memory_back(fd, begin, end);
      return error;
    }
  }
  return 0;
}

bool give_memory_back(int fd, std::uint64_t begin, std::uint64_t end) {
  if (begin == end) return true;
  const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  return ::fallocate(fd, mode, static_cast<off_t>(begin), static_cast<off_t>(end - begin)) == 0;
}

// Constructs the mailboxes before any peer has the descriptor, so that no peer has written to them.
int Node::make_arena() {
  FileHandle fd(create_memfd());
  if (const int error = back_with_memory(fd.get(), 0, kHeapBegin); error != 0)
    throw invalid("the system refused ", kHeapBegin, " bytes of shared memory: ", reason(error));
  void* const base = ::mmap(nullptr, kHeapBegin, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) throw invalid("cannot map shared memory: ", reason(errno));
  for (int slot = 0; slot < kMailboxes; ++slot) ::new (static_cast<Mailbox*>(base) + slot) Mailbox;
  ::new (static_cast<std::byte*>(base) + kHeaderOffset) ArenaHeader{kMagic, {0}, {}};
  ::munmap(base, kHeapBegin);
  return fd.release();
}

Mappings::Mappings(const std::vector<int>& fds, std::size_t reserve)
    : fork_(1, {[this] { mutex_.lock(); }, [this] { mutex_.unlock(); }, [this] { leave_to_parent(); }}) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < fds.size(); ++i) require_arena(fds[i], i);
  // The mapping extends far beyond the end of the file, so that the arena can grow in place. If a
  // limit on address space refuses it, a smaller mapping is tried.
  for (const std::size_t nbytes : {reserve, std::size_t{8} << 30, kSmallestReserve}) {
    if (nbytes > reserve || !map_all(fds, nbytes)) continue;
    nbytes_ = nbytes;
    const auto alien =
        std::find_if(bases_.begin(), bases_.end(), [](std::byte* base) { return header_of(base).magic != kMagic; });
    if (alien == bases_.end()) return;
    const auto index = alien - bases_.begin();
    unmap_all();
    throw invalid("the file descriptor of local rank ", index, " is not shared memory of ringcomm");
  }
  const std::string least = std::to_string(std::min(reserve, kSmallestReserve));
  throw invalid("cannot map the shared memory of ", fds.size(), " local rank(s), ", least,
                " bytes of address space each: ", reason(errno));
}

Mappings::~Mappings() {
  const std::lock_guard lock(mutex_);
  unmap_all();
}

// Makes the arenas unusable in a forked child, which must not write to other ranks' memory. The
// addresses stay reserved. If the child inherited no mapping there, other libraries could map their
// memory, which heaps (become_private) or unmap_all() would then remove.
void Mappings::leave_to_parent() noexcept {
  for (std::byte* const base : bases_)
    ::mmap(base, nbytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// Peers use equal offsets of different arenas together. AMD's L1 cache selects a line by a hash of
// bits 12 to 27 of its virtual address. If these bits were equal, every access would miss (10 times
// slower). So arena i begins i huge pages after a round address.
bool Mappings::map_all(const std::vector<int>& fds, std::size_t nbytes) {
  nbytes_ = nbytes;
  bases_.reserve(fds.size());
  for (std::size_t i = 0; i < fds.size(); ++i) {
    void* const room = ::mmap(nullptr, nbytes + kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void* base = MAP_FAILED;
    if (room != MAP_FAILED) {
      rooms_.push_back(room);
      const auto begin = round_up(reinterpret_cast<std::uintptr_t>(room), kHashed) + i * kHugePage % kHashed;
      base = ::mmap(reinterpret_cast<void*>(begin), nbytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fds[i], 0);
    }
    if (base == MAP_FAILED) {
      const int error = errno;
      unmap_all();
      errno = error;
      return false;
    }
    advise(base, nbytes);
    bases_.push_back(static_cast<std::byte*>(base));
  }
  return true;
}

void Mappings::unmap_all() {
  for (void* room : rooms_) ::munmap(room, nbytes_ + kRoom);
  rooms_.clear();
  bases_.clear();
}

}  // namespace ringcomm
