// A node gives this rank the memory that the ranks of its host share. Every rank owns an arena and
// maps the arenas of all ranks.
//
// An arena is a memfd. Its first pages hold the owner's mailboxes, by slot. The rest is a heap
// that grows by fallocate, so that a refusal is an error and never SIGBUS. Addresses are (rank,
// offset), because each rank maps arenas at different addresses. Python sends the descriptors over
// Unix sockets (bootstrap.py); this file only maps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shm/file_handle.hpp"
#include "shm/mailbox.hpp"

namespace ringcomm {

class Node {
 public:
  // Creates this rank's arena: a memfd with mailboxes. Returns the descriptor to send to peers.
  static int make_arena();
  // Maps every rank's arena. fds[i] is the descriptor of local rank i's arena, and still belongs to
  // the caller. Throws Error(invalid).
  Node(int rank, const std::vector<int>& fds, std::size_t reserve = std::size_t{64} << 30);
  // Creates nodes for ranks that are threads of one process. All use one mapping, so that a race
  // detector sees one address per byte.
  static std::vector<std::shared_ptr<Node>> for_threads(int size);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(bases_.size()); }
  Mailbox& mailbox(int rank, int slot) { return reinterpret_cast<Mailbox*>(at(rank, 0))[slot]; }
  std::byte* at(int rank, std::uint64_t offset) { return bases_[static_cast<std::size_t>(rank)] + offset; }

  // Allocates from this rank's heap: 4096-byte aligned, thread-safe, local. Throws Error(invalid)
  // with the number of bytes if memory is refused. A forked child keeps a private copy of allocated
  // memory, and cannot allocate more.
  std::uint64_t allocate(std::size_t nbytes);
  void free(std::uint64_t offset);
  std::size_t size_of(std::uint64_t offset) const;  // bytes allocated there, in pages; 0: none
  // Returns the offset of the data in this rank's arena; kPrivate if any of it is outside the heap.
  std::uint64_t offset_of(const void* data, std::size_t nbytes) const;

  // Watches processes, given one pidfd per local rank (-1: none, or this rank). Throws
  // Error(peer_lost) if some have ended already.
  void watch(std::vector<int> pidfds);
  std::vector<int> dead() const;  // local ranks of ended processes

 private:
  Node() = default;
  void take_arenas(int rank, const std::shared_ptr<class Mappings>& mappings, const std::vector<int>& fds);
  int rank_ = 0;
  std::vector<std::byte*> bases_;
  std::vector<FileHandle> watched_;  // pidfds, by local rank
  std::shared_ptr<class Mappings> mapping_;
  std::shared_ptr<class ArenaHeap> heap_;  // destroyed first
};

}  // namespace ringcomm
