// What links and hosts are like: the numbers that price schedules. Measured by tuning.py, or given.
#pragma once

#include <vector>

namespace ringcomm {

struct LinkModel {
  double alpha = 20e-6;  // s until a short message has come
  double beta = 8e-10;   // s per byte; a link carries so much each way at the same time
  double gap = 0;        // s that each further message of a round costs its rank (LogP's g)
  // s of a message's time on the wire that are over by the time alpha is: a link that catches up after a pause (a token
  // bucket) has some; others none.
  double hidden = 0;
};

struct Network {
  LinkModel between;                    // hosts; the ranks of a host share one link
  LinkModel within{1e-6, 1e-10, 0, 0};  // a host, by messages
  double gamma = 1e-10;                 // s per byte reduced
  double copy = 1e-10;                  // s per byte copied between ranks of a host through memory that they share
  double coding = 0;                    // s per byte sent, which its sender encodes and its receiver decodes
};

// Host of each rank. Empty: every rank has one of its own.
using Placement = std::vector<int>;

}  // namespace ringcomm
