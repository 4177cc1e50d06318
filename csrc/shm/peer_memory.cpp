// Reads peers' memory by process_vm_readv. A random number proves that a process id is the peer's.
#include "shm/peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <random>

namespace ringcomm {
namespace {

std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) ^ device();
}

bool read_process(std::int64_t pid, std::uint64_t from, void* into, std::size_t nbytes) {
  auto* const to = static_cast<std::byte*>(into);
  for (std::size_t done = 0; done < nbytes;) {
    const iovec here{to + done, nbytes - done}, there{reinterpret_cast<void*>(from + done), nbytes - done};
    const ssize_t read = ::process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    if (read <= 0) return false;
    done += static_cast<std::size_t>(read);
  }
  return true;
}

}  // namespace

PeerMemory::PeerMemory()
    : secret_(random_number()), card_{::getpid(), reinterpret_cast<std::uint64_t>(&secret_), secret_} {}

bool PeerMemory::read(const MemoryCard& card, std::uint64_t from, void* into, std::size_t nbytes) {
  // Used between threads too: a plain copy would crash if the peer unmapped the memory meanwhile.
  return read_process(card.pid, from, into, nbytes);
}

// Tests the secret, because a process id may name another process here, even this one: containers
// may share memory but not process ids.
bool PeerMemory::readable(const MemoryCard& card) {
  std::uint64_t secret = 0;
  return card.secret != 0 && read_process(card.pid, card.address, &secret, sizeof secret) && secret == card.secret;
}

}  // namespace ringcomm
