"""Gossip: every rank averages its weights with its neighbours only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm._src.decentralized.gossip import Gossip as Rounds
from ringcomm._src.decentralized.gossip import checked
from ringcomm._src.decentralized.pairs import Pairs
from ringcomm._src.decentralized.topology import Topology
from ringcomm._src.named.process_sets import global_process_set
from ringcomm._src.torch.relaxed.optimizer import relaxed, replica_of


def Gossip(
    optimizer: torch.optim.Optimizer,
    topology: str | Topology = "one_peer_exponential",
    mode: str = "sync",
    every: int = 1,
    resync: int = 0,
    order: str = "adapt_then_combine",
    compression: Any = None,
    gamma: float | None = None,
    model: torch.nn.Module | None = None,
    on_loss: str = "end",
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Returns an optimizer that takes local steps, and then averages the weights with neighbours in a graph.

    The average is x_i <- sum of W_ij x_j. A rank sends to few ranks, however many there are. All ranks
    agree in time, the sooner the larger the graph's spectral gap (``ringcomm show --topology ring``).

    The model (``global_weights()``, and the weights after ``finish()``) is the mean of all replicas. On
    one host an all-reduce through shared memory costs less than the messages of most graphs. Gossip is
    for networks, "async" for slow ranks.

    Source: Lian et al. (D-PSGD), arXiv:1705.09056; "async": Lian et al. (AD-PSGD), arXiv:1710.06952;
    ``resync``: Chen et al. (Gossip-PGA), arXiv:2105.09080; ``compression``: Koloskova et al. (CHOCO-SGD),
    arXiv:1907.09356.

    Args:
        optimizer: any except LBFGS.
        topology: "ring", "exponential", "one_peer_exponential", "hypercube", "torus", "star", "complete",
            a name given to `ringcomm.register_topology`, or a `ringcomm.Topology`; for any number of
            ranks.
        mode: "sync": rounds, in which each rank waits for its neighbours. "async": replicas are in memory
            that the host's ranks share; a rank averages with one random neighbour, and no rank waits.
        every: steps between rounds.
        resync: steps after which all ranks average; 0: never.
        order: "adapt_then_combine", or "combine_while_adapt": messages are sent during the next step.
        compression: in "sync", a wire format such as ``Compression.topk(0.1)``. It encodes the difference
            between the weights and the neighbours' copies of them. The topology must not change from
            round to round.
        gamma: with compression, the step towards the neighbours. Default: 1 for formats that lose little
            (int8), else 0.4.
        model: its floating-point buffers (BatchNorm's statistics) are averaged too.
        on_loss: in "async": "end", or "continue": ranks continue after another rank has died, if the
            launcher lets them.
        named_parameters: as for DistributedOptimizer; names for errors.
        process_set: the ranks; in "async", of one host.

    Raises:
        ValueError: arguments are invalid, or exclude each other; the graph does not preserve the mean.
        MismatchError: ranks differ. UnsupportedError: "async", and ranks share no memory.
    """
    how = checked(topology, mode, every, resync, order, compression, gamma)
    made, name, parameters = relaxed(optimizer, "Gossip", named_parameters, process_set, **how.settings())
    replica = replica_of(parameters, model)
    if mode == "async":
        made._method = Pairs(name, replica, how.graph, every, process_set, on_loss)
    else:
        made._method = Rounds(name, replica, how, process_set)
    return made
