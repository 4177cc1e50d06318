// Every built-in algorithm: what registry.cpp lists. `root` is ignored where the collective has none.
#pragma once

#include "schedule/schedule.hpp"

namespace ringcomm::schedules {

Schedule allreduce_all_to_all(int rank, int size, int root);
Schedule allreduce_master_worker(int rank, int size, int root);
Schedule allreduce_tree(int rank, int size, int root);
Schedule allreduce_round_robin(int rank, int size, int root);
Schedule allreduce_butterfly_doubling(int rank, int size, int root);
Schedule allreduce_butterfly_halving(int rank, int size, int root);
Schedule allreduce_ring(int rank, int size, int root);
Schedule allreduce_circulant(int rank, int size, int root);

Schedule reduce_binomial(int rank, int size, int root);
Schedule reduce_ring_gather(int rank, int size, int root);

Schedule broadcast_binomial(int rank, int size, int root);
Schedule broadcast_scatter_ring(int rank, int size, int root);
Schedule broadcast_chain(int rank, int size, int root);

Schedule allgather_bruck(int rank, int size, int root);
Schedule allgather_ring(int rank, int size, int root);

Schedule reducescatter_circulant(int rank, int size, int root);
Schedule reducescatter_ring(int rank, int size, int root);

Schedule alltoall_bruck(int rank, int size, int root);
Schedule alltoall_pairwise(int rank, int size, int root);
Schedule alltoall_direct(int rank, int size, int root);

Schedule barrier_dissemination(int rank, int size, int root);

}  // namespace ringcomm::schedules
