// Defines the properties of links and hosts: the parameters of the cost model (price.cpp).
// tuning.py measures them, or the user sets them.
#pragma once

#include <vector>

namespace ringcomm {

struct LinkModel {
  double alpha = 20e-6;  // s until a short message has arrived
  double beta = 8e-10;   // s per byte, in each direction at the same time
  double gap = 0;        // s of the rank's time per message of a round after the first (LogP's g)
  // Seconds of a message's transfer that the link hides behind alpha. Nonzero only for a link that
  // catches up after a pause (a token bucket).
  double hidden = 0;
};

struct Network {
  LinkModel between;                    // links between hosts; the ranks of a host share one
  LinkModel within{1e-6, 1e-10, 0, 0};  // links within a host, by messages
  double gamma = 1e-10;                 // s per byte reduced
  double copy = 1e-10;                  // s per byte copied between ranks of a host through shared memory
  double coding = 0;                    // s per byte sent, for encoding by the sender and decoding by the receiver
};

// Host of each rank. Empty: every rank has a separate host.
using Placement = std::vector<int>;

}  // namespace ringcomm
