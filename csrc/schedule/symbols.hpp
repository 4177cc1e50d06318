// Represents values for the prover: how a block was computed, not its contents. Equal expression
// trees have equal ids.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace ringcomm {

class Symbols {
 public:
  using Id = std::uint32_t;
  static constexpr Id undefined = 0;  // memory without a value
  struct Node {
    bool leaf;
    std::uint32_t a, b;           // leaf: rank and block; else the first and the second operand
    std::uint32_t lowest, parts;  // lowest contributing rank; number of leaves
    std::uint32_t encodings = 0;  // most consecutive encodings of any part of it
  };

  Id leaf(int rank, int block) {
    const auto from = static_cast<std::uint32_t>(rank);
    return make({true, from, static_cast<std::uint32_t>(block), from, 1});
  }
  Id join(Id first, Id second) {
    if (first == undefined || second == undefined) return undefined;
    const Node &a = nodes_[first], &b = nodes_[second];
    return make(
        {false, first, second, std::min(a.lowest, b.lowest), a.parts + b.parts, std::max(a.encodings, b.encodings)});
  }
  Id encoded(Id by, Id value) {  // `by`: a leaf that represents an encoder
    const Node &mark = nodes_[by], &data = nodes_[value];
    return make({false, by, value, data.lowest, mark.parts + data.parts, data.encodings + 1});
  }
  const Node& at(Id id) const { return nodes_[id]; }
  std::size_t size() const { return nodes_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const Node& n) const {
      const std::uint64_t key = (std::uint64_t{n.a} << 32 | n.b) * 2 + n.leaf;
      return static_cast<std::size_t>((key ^ key >> 31) * 0x9e3779b97f4a7c15u);
    }
  };
  struct Equal {
    bool operator()(const Node& x, const Node& y) const { return x.leaf == y.leaf && x.a == y.a && x.b == y.b; }
  };
  Id make(const Node& node) {
    const auto [found, is_new] = ids_.try_emplace(node, static_cast<Id>(nodes_.size()));
    if (is_new) nodes_.push_back(node);
    return found->second;
  }

  std::vector<Node> nodes_{{true, ~0u, ~0u, ~0u, 0}};  // entry 0 is `undefined`
  std::unordered_map<Node, Id, Hash, Equal> ids_;
};

using Values = std::vector<std::vector<Symbols::Id>>;  // [rank][block], data and scratch

}  // namespace ringcomm
