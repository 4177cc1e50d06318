// Makes the errors for ranks that left, failed or died.
#include "shm/peer_monitor.hpp"

#include "base/rank_text.hpp"

namespace ringcomm {

Error left_error(const std::vector<int>& ranks) {
  return {ErrorKind::left,
          rank_text(ranks) + " closed the communicator or ended its script, and takes part in no further call", ranks};
}

Error failed_error(const std::vector<int>& ranks) {
  return {ErrorKind::peer_lost, rank_text(ranks) + " failed in an earlier call, or was interrupted", ranks};
}

Error died_error(const std::vector<int>& ranks) {
  return {ErrorKind::peer_lost, rank_text(ranks) + " died: the process has ended", ranks};
}

}  // namespace ringcomm
