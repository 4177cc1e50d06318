// Implements the topologies: fat tree, torus, rails, and graphs from a file.
#include "schedule/topology.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace ringcomm {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

double total(const std::vector<int>& ranks) { return std::accumulate(ranks.begin(), ranks.end(), 0.0); }

class FatTree : public Topology {
 public:
  FatTree(int hosts, int rack, double oversubscription)
      : Topology(hosts, 2, {"host link", "rack uplink"}), rack_(rack), racks_(2 * hosts) {
    for (int link = 0; link < 2 * hosts; ++link) add_link(1, 0);
    for (int first = 0; first < hosts; first += rack) {
      const double uplink = oversubscription / std::min(rack, hosts - first);
      add_link(uplink, 1);
      add_link(uplink, 1);
    }
  }

  void route(Endpoint from, Endpoint to, std::vector<int>& links) const override {
    links.push_back(2 * from.host);
    if (from.host / rack_ != to.host / rack_) {
      links.push_back(racks_ + 2 * (from.host / rack_));
      links.push_back(racks_ + 2 * (to.host / rack_) + 1);
    }
    links.push_back(2 * to.host + 1);
  }

  std::size_t add_exchange(const std::vector<int>& ranks, std::vector<double>& loads) const override {
    const double all = total(ranks);
    std::vector<double> in_rack(at((hosts_ + rack_ - 1) / rack_));
    for (int host = 0; host < hosts_; ++host) in_rack[at(host / rack_)] += ranks[at(host)];
    const auto add = [&](int link, double own) {
      loads[at(link)] += own * (all - own);
      loads[at(link + 1)] += own * (all - own);
    };
    for (int host = 0; host < hosts_; ++host) add(2 * host, ranks[at(host)]);
    for (std::size_t rack = 0; rack < in_rack.size(); ++rack) add(racks_ + 2 * static_cast<int>(rack), in_rack[rack]);
    return std::ranges::count_if(in_rack, [](double count) { return count > 0; }) > 1 ? 4 : 2;
  }

 private:
  int rack_, racks_;  // hosts of a rack; index of the first rack's link
};

class Torus : public Topology {
 public:
  explicit Torus(const std::vector<int>& shape)
      : Topology(std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>()), 1, {"torus link"}),
        shape_(shape) {
    const int directions = 2 * static_cast<int>(shape.size());
    for (int link = 0; link < hosts_ * directions; ++link) add_link(1, 0);
  }

  void route(Endpoint from, Endpoint to, std::vector<int>& links) const override {
    const int dimensions = static_cast<int>(shape_.size());
    int host = from.host, stride = 1;
    for (int d = dimensions - 1; d >= 0; --d) {
      const int length = shape_[at(d)], here = host / stride % length, there = to.host / stride % length;
      int distance = (there - here + length) % length;  // upwards
      const bool up = 2 * distance < length || (2 * distance == length && here % 2 == 0);
      if (!up) distance = length - distance;
      for (int step = 0, position = here; step < distance; ++step) {
        links.push_back((host * dimensions + d) * 2 + (up ? 0 : 1));
        const int next = (position + (up ? 1 : length - 1)) % length;
        host += (next - position) * stride;
        position = next;
      }
      stride *= length;
    }
  }

  // A message uses a link of dimension d if its source has the link's coordinates before d, its
  // destination those after d, and the link is on its way around the ring of d.
  std::size_t add_exchange(const std::vector<int>& ranks, std::vector<double>& loads) const override {
    if (std::ranges::any_of(ranks, [&](int count) { return count != ranks[0]; })) return 0;
    const int dimensions = static_cast<int>(shape_.size());
    int stride = hosts_;
    std::size_t longest = 0;
    for (int d = 0; d < dimensions; ++d) {
      const int length = shape_[at(d)];
      stride /= length;
      const double times = static_cast<double>(ranks[0]) * ranks[0] * (hosts_ / length);
      for (int host = 0; host < hosts_; ++host) {
        const int position = host / stride % length;
        for (const int direction : {0, 1})
          loads[at((host * dimensions + d) * 2 + direction)] += times * on_ring(length, position, direction);
      }
      longest += at(length / 2);
    }
    return longest;
  }

 private:
  // Returns the load of one link, at `position`, if each rank of a ring sends to each other one.
  static double on_ring(int length, int position, int direction) {
    const int nearer = (length - 1) / 2, half = length / 2;
    double load = 0.5 * nearer * (nearer + 1);
    if (length % 2 == 0) load += half % 2 == 0 ? half / 2 : (half + (position % 2 == direction ? 1 : -1)) / 2;
    return load;
  }

  std::vector<int> shape_;
};

class Rails : public Topology {
 public:
  Rails(int hosts, int rails, double spine)
      : Topology(hosts, 2, {"rail", "spine"}), rails_(rails), spine_(2 * hosts * rails), has_spine_(spine > 0) {
    for (int link = 0; link < 2 * hosts * rails; ++link) add_link(1, 0);
    for (int link = 0; has_spine_ && link < 2 * rails; ++link) add_link(spine / hosts, 1);
  }
  int rails() const override { return rails_; }

  void route(Endpoint from, Endpoint to, std::vector<int>& links) const override {
    const int arrives = to.local % rails_, leaves = has_spine_ ? from.local % rails_ : arrives;
    links.push_back(2 * (from.host * rails_ + leaves));
    if (leaves != arrives) {
      links.push_back(spine_ + 2 * leaves);
      links.push_back(spine_ + 2 * arrives + 1);
    }
    links.push_back(2 * (to.host * rails_ + arrives) + 1);
  }

  std::size_t add_exchange(const std::vector<int>& ranks, std::vector<double>& loads) const override {
    const auto on_rail = [&](int count, int rail) { return (count - rail + rails_ - 1) / rails_; };
    const double all = total(ranks);
    for (int rail = 0; rail < rails_; ++rail) {
      double here = 0, within = 0;  // ranks of this rail; pairs of them on one host
      for (const int count : ranks) here += on_rail(count, rail);
      for (int host = 0; host < hosts_; ++host) {
        const double count = ranks[at(host)], own = on_rail(ranks[at(host)], rail);
        const int link = 2 * (host * rails_ + rail);
        loads[at(link)] += has_spine_ ? own * (all - count) : count * (here - own);
        loads[at(link + 1)] += own * (all - count);
        within += own * count - own * own;
      }
      if (!has_spine_) continue;
      loads[at(spine_ + 2 * rail)] += here * (all - here) - within;
      loads[at(spine_ + 2 * rail + 1)] += here * (all - here) - within;
    }
    return has_spine_ && rails_ > 1 && std::ranges::max(ranks) > 1 ? 4 : 2;
  }

 private:
  int rails_, spine_;  // spine_: index of its first link
  bool has_spine_;
};

class Graph : public Topology {
 public:
  Graph(int hosts, int nodes, const std::vector<GraphLink>& links, std::vector<std::string> kinds)
      : Topology(hosts, at(nodes), std::move(kinds)), given_(links), out_(at(nodes)), in_(at(nodes)), next_(at(hosts)) {
    for (std::size_t k = 0; k < links.size(); ++k) {
      add_link(links[k].cost, links[k].kind);
      out_[at(links[k].from)].push_back(static_cast<int>(k));
      in_[at(links[k].to)].push_back(static_cast<int>(k));
    }
    for (int host = 0; host < hosts; ++host) find_routes(host);
    if (hosts == 1) shortest_ = 0;
  }

  void route(Endpoint from, Endpoint to, std::vector<int>& links) const override {
    for (int node = from.host; node != to.host; node = given_[at(links.back())].to)
      links.push_back(next_[at(to.host)][at(node)]);
  }

 private:
  void find_routes(int to) {  // breadth first, backwards from the destination
    std::vector<int> distance(out_.size(), -1), queue{to};
    distance[at(to)] = 0;
    for (std::size_t first = 0; first < queue.size(); ++first) {
      for (const int link : in_[at(queue[first])]) {
        const int node = given_[at(link)].from;
        if (distance[at(node)] >= 0) continue;
        distance[at(node)] = distance[at(queue[first])] + 1;
        queue.push_back(node);
      }
    }
    next_[at(to)].assign(out_.size(), -1);
    for (int node = 0; node < static_cast<int>(out_.size()); ++node) {
      if (node < hosts_ && distance[at(node)] < 0)
        throw invalid("the topology has no route from host ", node, " to host ", to, ": add a link");
      std::vector<int> nearer;
      for (const int link : out_[at(node)]) {
        if (distance[at(given_[at(link)].to)] == distance[at(node)] - 1 && distance[at(node)] > 0)
          nearer.push_back(link);
      }
      if (!nearer.empty()) next_[at(to)][at(node)] = nearer[at(to) % nearer.size()];
      if (node < hosts_ && node != to) shortest_ = std::min(shortest_, at(distance[at(node)]));
    }
  }

  std::vector<GraphLink> given_;
  std::vector<std::vector<int>> out_, in_;  // links of each node
  std::vector<std::vector<int>> next_;      // [destination][node] -> link, -1 at the destination
};

}  // namespace

std::size_t Topology::add_exchange(const std::vector<int>&, std::vector<double>&) const { return 0; }

int Topology::add_link(double cost, int kind) {
  links_.push_back({cost, kind});
  return static_cast<int>(links_.size()) - 1;
}

std::shared_ptr<Topology> make_fat_tree(int hosts, int rack, double oversubscription) {
  if (hosts < 1 || rack < 1 || !(oversubscription > 0))
    throw invalid("a fat tree needs at least one host, one host in a rack, and a positive oversubscription");
  return std::make_shared<FatTree>(hosts, rack, oversubscription);
}

std::shared_ptr<Topology> make_torus(const std::vector<int>& shape) {
  if (shape.empty() || std::ranges::any_of(shape, [](int length) { return length < 1; }))
    throw invalid("a torus needs at least one dimension, and one host in each");
  return std::make_shared<Torus>(shape);
}

std::shared_ptr<Topology> make_rails(int hosts, int rails, double spine) {
  if (hosts < 1 || rails < 1 || spine < 0) throw invalid("rails need at least one host and one rail");
  return std::make_shared<Rails>(hosts, rails, spine);
}

std::shared_ptr<Topology> make_graph(int hosts, int nodes, const std::vector<GraphLink>& links,
                                     std::vector<std::string> kinds) {
  const auto bad = [&](const GraphLink& link) {
    return std::min(link.from, link.to) < 0 || std::max(link.from, link.to) >= nodes || !(link.cost > 0) ||
           link.kind < 0 || at(link.kind) >= kinds.size();
  };
  if (hosts < 1 || nodes < hosts || std::ranges::any_of(links, bad))
    throw invalid("a graph needs at least one host, and links between its nodes with a positive cost");
  return std::make_shared<Graph>(hosts, nodes, links, std::move(kinds));
}

}  // namespace ringcomm
