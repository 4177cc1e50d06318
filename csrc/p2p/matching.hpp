// Matches messages with receives. It holds a list of posted receives, and a list of messages that
// arrived before a matching receive. Matcher uses it.
//
// MPI-4.1, section 3.5: if a receive accepts two messages of one sender, it gets the first of them.
// If two receives accept a message, the one posted first gets it. So both lists are in order, and
// are searched from the front, where the match usually is.
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
    return posted_.take([&](const Waiting& entry) { return accepts(entry.source, entry.tag, envelope); },
                        &Waiting::posted);
  }
  void keep(const Envelope& envelope, Message message) { unexpected_.push({envelope, std::move(message)}); }

  // Removes and returns the first message that the receive accepts.
  std::optional<Message> want(int source, int tag) {
    return unexpected_.take([&](const Unexpected& entry) { return accepts(source, tag, entry.envelope); },
                            &Unexpected::message);
  }
  void post(int source, int tag, Posted posted) { posted_.push({source, tag, std::move(posted)}); }

  const Envelope* probe(int source, int tag) {
    const Unexpected* found =
        unexpected_.find([&](const Unexpected& entry) { return accepts(source, tag, entry.envelope); });
    return found ? &found->envelope : nullptr;
  }
  bool cancel(const Posted& posted) {
    return posted_.take([&](const Waiting& entry) { return entry.posted == posted; }, &Waiting::posted).has_value();
  }
  // Removes and returns a posted receive for which `condition(source, tag)` holds.
  template <class Condition>
  std::optional<Posted> take_posted(Condition&& condition) {
    return posted_.take([&](const Waiting& entry) { return condition(entry.source, entry.tag); }, &Waiting::posted);
  }
  // Removes and returns the first message for which `condition(message)` holds.
  template <class Condition>
  std::optional<Message> drop(Condition&& condition) {
    return unexpected_.take([&](const Unexpected& entry) { return condition(entry.message); }, &Unexpected::message);
  }
  Line<Unexpected>& unexpected() { return unexpected_; }
  std::size_t posted() const { return posted_.size(); }

 private:
  Line<Waiting> posted_;
  Line<Unexpected> unexpected_;
};

}  // namespace ringcomm
