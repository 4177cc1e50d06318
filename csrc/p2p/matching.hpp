// Matches messages with receives. It holds a list of posted receives, and a list of messages that
// arrived before a matching receive. Matcher uses it.
//
// MPI-4.1, section 3.5: messages of one sender are received in the order sent, by receives that
// accept both; a receive posted earlier has the first choice. Both lists keep that order, and are
// searched from the front, where the match usually is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "p2p/request.hpp"

namespace ringcomm {

// A list from which items are mostly removed at the front.
template <class Item>
class Line {
 public:
  void push(Item item) { items_.push_back(std::move(item)); }
  // Removes the first item that is wanted, and returns the given part of it.
  template <class Wanted, class Part>
  std::optional<Part> take(Wanted&& wanted, Part Item::* part) {
    const auto found = std::find_if(begin(), items_.end(), wanted);
    if (found == items_.end()) return std::nullopt;
    std::optional<Part> taken(std::move((*found).*part));
    if (found == begin()) {
      ++taken_;
      tidy();
    } else {
      items_.erase(found);
    }
    return taken;
  }
  template <class Wanted>
  const Item* find(Wanted&& wanted) {
    const auto found = std::find_if(begin(), items_.end(), wanted);
    return found == items_.end() ? nullptr : &*found;
  }
  auto begin() { return items_.begin() + static_cast<std::ptrdiff_t>(taken_); }
  auto end() { return items_.end(); }
  std::size_t size() const { return items_.size() - taken_; }
  bool empty() const { return size() == 0; }

 private:
  void tidy() {
    if (taken_ == items_.size()) {
      items_.clear();
    } else if (taken_ < 64 || taken_ * 2 < items_.size()) {
      return;
    } else {
      items_.erase(items_.begin(), begin());
    }
    taken_ = 0;
  }
  std::vector<Item> items_;
  std::size_t taken_ = 0;
};

template <class Posted, class Message>
class Matching {
 public:
  struct Waiting {
    int source, tag;
    Posted posted;
  };
  struct Unexpected {
    Envelope envelope;
    Message message;
  };

  // Removes and returns the first posted receive that accepts the message.
  std::optional<Posted> arrive(const Envelope& envelope) {
    return posted_.take([&](const Waiting& one) { return accepts(one.source, one.tag, envelope); }, &Waiting::posted);
  }
  void keep(const Envelope& envelope, Message message) { unexpected_.push({envelope, std::move(message)}); }

  // Removes and returns the first message that the receive accepts.
  std::optional<Message> want(int source, int tag) {
    return unexpected_.take([&](const Unexpected& one) { return accepts(source, tag, one.envelope); },
                            &Unexpected::message);
  }
  void post(int source, int tag, Posted posted) { posted_.push({source, tag, std::move(posted)}); }

  const Envelope* probe(int source, int tag) {
    const Unexpected* found =
        unexpected_.find([&](const Unexpected& one) { return accepts(source, tag, one.envelope); });
    return found ? &found->envelope : nullptr;
  }
  bool cancel(const Posted& posted) {
    return posted_.take([&](const Waiting& one) { return one.posted == posted; }, &Waiting::posted).has_value();
  }
  // Removes and returns a posted receive for which `doomed(source, tag)` holds.
  template <class Doomed>
  std::optional<Posted> take_posted(Doomed&& doomed) {
    return posted_.take([&](const Waiting& one) { return doomed(one.source, one.tag); }, &Waiting::posted);
  }
  // Removes a message that is withdrawn: the first for which `doomed` holds.
  template <class Doomed>
  std::optional<Message> drop(Doomed&& doomed) {
    return unexpected_.take([&](const Unexpected& one) { return doomed(one.message); }, &Unexpected::message);
  }
  Line<Unexpected>& unexpected() { return unexpected_; }
  std::size_t posted() const { return posted_.size(); }

 private:
  Line<Waiting> posted_;
  Line<Unexpected> unexpected_;
};

}  // namespace ringcomm
