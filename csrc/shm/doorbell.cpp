// Accesses the doorbells in the headers of arenas.
#include "shm/doorbell.hpp"

#include "shm/arena.hpp"

namespace ringcomm {

Doorbell& doorbell_of(Node& node, int rank) { return header_of(node.at(rank, 0)).doorbell; }

void mark_failed(Node& node, int rank) { doorbell_of(node, rank).state.store(2, std::memory_order_seq_cst); }

}  // namespace ringcomm
