// Memory that the ranks of a host share: every rank owns an arena, and maps everybody's.
//
// An arena is a memfd whose first pages hold this rank's mailboxes, one per slot; the rest is a heap that grows by
// fallocate, so that a refusal is an error and never SIGBUS. An address in it is (rank, offset), for ranks map it
// anywhere. The descriptors travel over Unix sockets in Python (bootstrap.py); here they are only mapped.
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
  // Makes this rank's arena: a memfd of `reserve` bytes of address space; returns the descriptor to give to peers.
  static int make_arena();
  // Maps every rank's arena; fds[i] is local rank i's (duplicates are taken; the caller keeps its own). Throws
  // Error(invalid).
  Node(int rank, const std::vector<int>& fds, std::size_t reserve = std::size_t{64} << 30);
  // Ranks as threads: nodes of one process over the same memory (so that a race detector sees one address per byte).
  static std::vector<std::shared_ptr<Node>> for_threads(int size);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(bases_.size()); }
  Mailbox& mailbox(int rank, int slot);
  std::byte* at(int rank, std::uint64_t offset) { return bases_[static_cast<std::size_t>(rank)] + offset; }

  // This rank's heap: 4096-byte aligned. Thread-safe, local. Throws Error(invalid) naming the bytes if memory is
  // refused. A forked child keeps what there is, as a copy of its own, and gets nothing new.
  std::uint64_t allocate(std::size_t nbytes);
  void free(std::uint64_t offset);
  std::size_t size_of(std::uint64_t offset) const;  // of what is allocated there, whole pages; 0: nothing is
  std::uint64_t offset_of(const void* data, std::size_t nbytes) const;  // kPrivate if not (wholly) in this rank's arena

  // Processes to watch: a pidfd per local rank (-1: none, or oneself). Throws Error(peer_lost) naming local ranks that
  // died.
  void watch(std::vector<int> pidfds);
  std::vector<int> dead() const;  // local ranks whose process has ended

 private:
  Node() = default;
  void take_arenas(int rank, const std::shared_ptr<class Mappings>& mappings, const std::vector<int>& fds);
  int rank_ = 0;
  std::vector<std::byte*> bases_;
  std::vector<FileHandle> watched_;  // pidfds, by local rank
  std::shared_ptr<class Mappings> mapping_;
  std::shared_ptr<class ArenaHeap> heap_;  // goes first
};

}  // namespace ringcomm
