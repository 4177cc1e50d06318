// Describes the network between hosts: directed links with capacities, and the route between each
// two hosts. contention.hpp computes from it the time that a round of messages takes.
//
// A link's `cost` is the time per byte relative to a host's link (Network::between.beta): 1 for a
// host's link, 0.5 for a link of twice its rate.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ringcomm {

struct TopologyLink {
  double cost = 1;
  int kind = 0;  // index in Topology::kinds()
};

// A rank's position: its host, and its number among the ranks of the host.
struct Endpoint {
  int host = 0, local = 0;
};

class Topology {
 public:
  virtual ~Topology() = default;

  int hosts() const { return hosts_; }
  const std::vector<TopologyLink>& links() const { return links_; }
  const std::vector<std::string>& kinds() const { return kinds_; }  // names of the kinds of links
  // Seconds that a route takes longer for each link beyond those of the shortest route.
  double hop = 0;
  std::size_t shortest() const { return shortest_; }  // links of the shortest route
  virtual int rails() const { return 1; }             // links of a host that its ranks use in turn

  // Appends the links of the route between two different hosts.
  virtual void route(Endpoint from, Endpoint to, std::vector<int>& links) const = 0;
  // Adds the load of a message from every rank to every rank of another host. `ranks`: number of
  // ranks on each host. Returns the links of the longest route; 0 if no closed form is known.
  virtual std::size_t add_exchange(const std::vector<int>& ranks, std::vector<double>& loads) const;

 protected:
  Topology(int hosts, std::size_t shortest, std::vector<std::string> kinds)
      : hosts_(hosts), shortest_(shortest), kinds_(std::move(kinds)) {}
  int add_link(double cost, int kind);  // returns the link's index

  int hosts_;
  std::size_t shortest_;
  std::vector<std::string> kinds_;
  std::vector<TopologyLink> links_;
};

// Racks of `rack` hosts below a core without contention. The uplink of a rack carries, in each
// direction, rack / oversubscription times a host's rate.
std::shared_ptr<Topology> make_fat_tree(int hosts, int rack, double oversubscription);

// A torus: host i has the coordinates of i in `shape`, of which the last varies fastest. Neighbours
// are joined by a link in each direction. Routes correct one dimension after another, the last one
// first, each along the shorter side; half-way around, even coordinates route upwards.
std::shared_ptr<Topology> make_torus(const std::vector<int>& shape);

// Hosts with `rails` links, each to the switch of its rail. The rank with number i on its host
// sends over rail i mod rails. If `spine` is 0, data for another rail first moves inside the host;
// else it moves from rail to rail through a spine with this oversubscription.
std::shared_ptr<Topology> make_rails(int hosts, int rails, double spine);

// A link of a given graph, in one direction. Nodes 0 .. hosts-1 are the hosts.
struct GraphLink {
  int from = 0, to = 0;
  double cost = 1;
  int kind = 0;
};
// Routes have the fewest links. Among equal ones, each node uses its links in turn, by the number
// of the destination. Throws Error(invalid) if a host cannot reach another one.
std::shared_ptr<Topology> make_graph(int hosts, int nodes, const std::vector<GraphLink>& links,
                                     std::vector<std::string> kinds);

}  // namespace ringcomm
