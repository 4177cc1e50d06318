// Implements the sending side of HostRoute: writes cells, parts, and granted data.
#include <algorithm>
#include <cstring>

#include "kernels/kernels.hpp"
#include "p2p/host_route.hpp"

namespace ringcomm {
namespace {

constexpr std::size_t kShortestPart = 8 << 10, kLongestPart = 64 << 10;

}  // namespace

void HostRoute::send(Request& send) {
  Link& link = link_of(send.peer);
  if (link.error) return send.fail(*link.error);
  if (!link.out) make_ring(link);
  if (!link.queue.empty() || !write(link, send)) link.queue.push_back(&send);
}

bool HostRoute::write(Link& link, Request& send) {
  if (send.id == 0) {
    Cell* const cell = link.out.next();
    if (!cell) return false;
    send.id = ++link.sent;
    cell->id = send.id;
    cell->tag = send.tag;
    cell->nbytes = send.nbytes;
    if (send.nbytes <= Cell::kRoom) {
      cell->kind = CellKind::whole;
      if (send.nbytes > 0) std::memcpy(cell->data, send.data, send.nbytes);
      sends->memory += send.nbytes;
      publish(link);
      send.finish();
      return true;
    }
    if (send.nbytes > kLongestEager) {
      const Lender lender{memory_.card(), reinterpret_cast<std::uint64_t>(send.data), attended_};
      cell->kind = CellKind::announce;
      cell->where = node_->offset_of(send.data, send.nbytes);
      std::memcpy(cell->data, &lender, sizeof lender);
      link.announced.push_back(&send);
      publish(link);
      return true;
    }
    cell->kind = CellKind::begin;
    publish(link);
  }
  return write_parts(link, send);
}

bool HostRoute::write_parts(Link& link, Request& send) {
  const std::size_t longest = std::clamp(send.nbytes / 8, kShortestPart, kLongestPart);
  while (send.moved < send.nbytes) {
    const std::size_t nbytes = std::min(longest, send.nbytes - send.moved);
    Cell* const cell = link.out.next();
    if (!cell) return false;
    std::byte* const bytes = link.out.reserve(nbytes, cell->where);
    if (!bytes) return false;
    kernels::copy(bytes, static_cast<const std::byte*>(send.data) + send.moved, nbytes);
    sends->memory += nbytes;
    cell->kind = CellKind::part;
    cell->id = send.id;
    cell->nbytes = nbytes;
    publish(link);
    send.moved += nbytes;
  }
  send.finish();
  return true;
}

bool HostRoute::place(Link& link, Request& send) {
  const std::size_t nbytes = std::min<std::size_t>(kSlice, send.nbytes - send.moved);
  kernels::copy(node_->at(link.local, send.target + send.moved), static_cast<const std::byte*>(send.data) + send.moved,
                nbytes);
  sends->memory += nbytes;
  send.moved += nbytes;
  if (send.moved < send.nbytes) return false;
  send_control(link, {CellKind::placed, send.id, 0});
  send.finish();
  return true;
}

bool HostRoute::give(Link& link) {
  bool moved = false;
  while (!link.controls.empty() && link.out.next()) {
    const Control control = link.controls.front();
    link.controls.pop_front();
    std::deque<Control> others;
    others.swap(link.controls);
    send_control(link, control);
    link.controls.swap(others);
    if (control.kind == CellKind::withdrawn) end_withdrawn(link, control.id);
    moved = true;
  }
  const auto progressed = [&](Request* send) {
    const std::uint64_t before = send->moved;
    const bool over = write_parts(link, *send);
    moved |= over || send->moved != before;
    return over;
  };
  while (!link.queue.empty()) {
    Request* const send = link.queue.front();
    const std::uint64_t before = send->moved;
    const bool over = write(link, *send);
    moved |= over || send->moved != before;
    if (!over) break;
    link.queue.pop_front();
  }
  std::erase_if(link.streams, progressed);
  moved |= !link.places.empty() || !link.pulls.empty();
  std::erase_if(link.places, [&](Request* send) { return place(link, *send); });
  std::erase_if(link.pulls, [&](const Message& message) { return pull(link, message); });
  return moved;
}

}  // namespace ringcomm
