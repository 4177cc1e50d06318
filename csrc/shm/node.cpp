// Implements Node: maps the arenas of a host's ranks, and translates addresses.
#include "shm/node.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "shm/arena.hpp"
#include "shm/heap.hpp"
#include "shm/peer_monitor.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kThreadsReserve = std::size_t{8} << 30;  // address space per arena; one process maps all of them

// Returns the smallest size that any rank has mapped. A rank that has not mapped its arenas yet
// will map at least the smallest reserve, or fail.
std::uint64_t seen_by_all(const std::vector<std::byte*>& bases, std::size_t own) {
  std::uint64_t least = own;
  for (std::byte* base : bases) {
    const std::uint64_t mapped = header_of(base).mapped.load(std::memory_order_acquire);
    least = std::min<std::uint64_t>(least, mapped != 0 ? mapped : kSmallestReserve);
  }
  return least;
}

}  // namespace

Node::Node(int rank, const std::vector<int>& fds, std::size_t reserve) : Node() {
  if (rank < 0 || static_cast<std::size_t>(rank) >= fds.size())
    throw invalid("local rank ", rank, " is not one of the ", fds.size(), " ranks with shared memory");
  take_arenas(rank, std::make_shared<Mappings>(fds, reserve), fds);
}

void Node::take_arenas(int rank, const std::shared_ptr<Mappings>& mappings, const std::vector<int>& fds) {
  rank_ = rank;
  mapping_ = mappings;
  bases_ = mappings->bases();
  const std::size_t mapped = mappings->nbytes();
  const auto me = static_cast<std::size_t>(rank);
  header_of(bases_[me]).mapped.store(mapped, std::memory_order_release);
  heap_ = std::make_shared<ArenaHeap>(FileHandle::duplicate(fds[me]), bases_[me], mapped,
                                      [bases = bases_, mapped] { return seen_by_all(bases, mapped); });
}

std::vector<std::shared_ptr<Node>> Node::for_threads(int size) {
  std::vector<FileHandle> arenas;
  std::vector<int> fds;
  for (int rank = 0; rank < size; ++rank) fds.push_back(arenas.emplace_back(make_arena()).get());
  const auto mappings = std::make_shared<Mappings>(fds, kThreadsReserve);
  std::vector<std::shared_ptr<Node>> nodes;
  for (int rank = 0; rank < size; ++rank) {
    nodes.push_back(std::shared_ptr<Node>(new Node()));
    nodes.back()->take_arenas(rank, mappings, fds);
  }
  return nodes;
}

Node::~Node() = default;

std::uint64_t Node::allocate(std::size_t nbytes) { return heap_->allocate(nbytes); }

std::size_t Node::size_of(std::uint64_t offset) const { return heap_->size_of(offset); }

void Node::free(std::uint64_t offset) { heap_->free(offset); }

std::uint64_t Node::offset_of(const void* data, std::size_t nbytes) const {
  const auto base = reinterpret_cast<std::uintptr_t>(bases_[static_cast<std::size_t>(rank_)]);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t end = base + mapping_->nbytes();
  if (address < base + kHeapBegin || address > end || nbytes > end - address) return kPrivate;
  return address - base;
}

void Node::watch(std::vector<int> pidfds) {
  if (pidfds.size() != bases_.size())
    throw invalid("watch: ", pidfds.size(), " process descriptors for ", bases_.size(), " ranks");
  std::vector<FileHandle> copies;
  for (const int fd : pidfds) copies.push_back(fd < 0 ? FileHandle() : FileHandle::duplicate(fd));
  watched_ = std::move(copies);
  if (const std::vector<int> died = dead(); !died.empty()) throw died_error(died);
}

std::vector<int> Node::dead() const { return ended_among(watched_); }

}  // namespace ringcomm
