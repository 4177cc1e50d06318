"""Solutions of all exercises. Run this file to grade them."""

from math import ceil, log2

import numpy as np

import ringcomm
from ringcomm.algorithms import receive, reduce, send
from ringcomm.teaching import check

# ---- notebook 1: all-reduce ------------------------------------------------------------------------------------------


def ring(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    share_reduce = [[send(right, (rank - i) % size), reduce(left, (rank - i - 1) % size)] for i in range(size - 1)]
    share_only = [[send(right, (rank + 1 - i) % size), receive(left, (rank - i) % size)] for i in range(size - 1)]
    return share_reduce + share_only


def butterfly(rank, size):
    peers = [rank ^ 1 << k for k in range(int(log2(size)))]
    return [[send(peer, 0), reduce(peer, 0)] for peer in peers]


def halving(rank, size):
    mine, there, back = range(size), [], []
    for k in reversed(range(int(log2(size)))):
        peer, half = rank ^ 1 << k, len(mine) // 2
        keep, give = (mine[half:], mine[:half]) if rank >> k & 1 else (mine[:half], mine[half:])
        there.append([send(peer, b) for b in give] + [reduce(peer, b) for b in keep])
        back.insert(0, [send(peer, b) for b in keep] + [receive(peer, b) for b in give])
        mine = keep
    return there + back


def fold(rank, size):
    """Ranks above the largest power of two give their data to a partner, and get the result."""
    power = 1 << size.bit_length() - 1
    if rank >= power:
        return [[send(rank - power, 0)], [receive(rank - power, 0)]]
    partner = rank + power
    if partner < size:
        return [[reduce(partner, 0)], *butterfly(rank, power), [send(partner, 0)]]
    return butterfly(rank, power)


def tree_root_3(rank, size):
    relative, levels = (rank - 3) % size, ceil(log2(size))
    up, down = [], []
    for k in range(levels):
        bit = 1 << k
        if relative & bit:
            parent = (rank - bit) % size
            return [*up, [send(parent, 0)], [receive(parent, 0)], *down]
        if relative + bit < size:
            child = (rank + bit) % size
            up.append([reduce(child, 0)])
            down.insert(0, [send(child, 0)])
    return up + down


def two_rounds(rank, size):
    others = [peer for peer in range(size) if peer != rank]
    there = [step for peer in others for step in (send(peer, peer), reduce(peer, rank))]
    back = [step for peer in others for step in (send(peer, rank), receive(peer, peer))]
    return [there, back]


def deadlock(rank, size):
    """Every rank waits for its left neighbour before it sends."""
    return [[receive((rank - 1) % size, 0)], [send((rank + 1) % size, 0)]]


RING_BYTES = 2 * 7 / 8 * 4 * 1_000_000

# ---- notebook 2: costs -----------------------------------------------------------------------------------------------

CROSSOVER = (126 - 6) * 20e-6 / (1e-9 * (6 - 2 * 63 / 64))
CHOOSE_64 = {1 << 10: "butterfly_doubling", 64 << 20: "butterfly_halving"}

# ---- notebook 3: synchronous SGD -------------------------------------------------------------------------------------


def same_start(comm, weights):
    return comm.broadcast(weights, root=0)


def unequal_batches(comm, gradient_sum, count):
    return comm.allreduce(gradient_sum) / comm.allreduce(np.array([count]))


BIT_EQUALITY = 1e8, -1e8, 1.0

# ---- notebook 4: relaxed synchronisation -----------------------------------------------------------------------------

STRAGGLER = 4 / 0.040, 3 / 0.010 + 1 / 0.040


def ssp(steps, staleness):
    return [rank for rank, own in enumerate(steps) if own <= min(steps) + staleness]


# ---- notebook 5: compression -----------------------------------------------------------------------------------------


def residual(gradient, left, k):
    total = gradient + left
    sent = np.zeros_like(total)
    largest = np.argsort(-abs(total))[:k]
    sent[largest] = total[largest]
    return sent, total - sent


# ---- notebook 6: parallelism -----------------------------------------------------------------------------------------


def bubble(stages, microbatches):
    return (stages - 1) / (microbatches + stages - 1)


def tensor_parallel(comm, x, columns, rows):
    return comm.allreduce(np.maximum(x @ columns, 0) @ rows, op=ringcomm.Sum)


SOLUTIONS = {
    "ring": ring,
    "butterfly": butterfly,
    "halving": halving,
    "fold": fold,
    "tree_root_3": tree_root_3,
    "two_rounds": two_rounds,
    "deadlock": deadlock,
    "ring_bytes": RING_BYTES,
    "crossover": CROSSOVER,
    "choose_64": CHOOSE_64,
    "same_start": same_start,
    "unequal_batches": unequal_batches,
    "bit_equality": BIT_EQUALITY,
    "straggler": STRAGGLER,
    "ssp": ssp,
    "residual": residual,
    "bubble": bubble,
    "tensor_parallel": tensor_parallel,
}

if __name__ == "__main__":
    for name, answer in SOLUTIONS.items():
        print(check(name, answer))
