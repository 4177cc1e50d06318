"""Gossip: every rank averages with its neighbours only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm.process_sets import global_process_set
from ringcomm.relaxed.gossip import GossipRounds
from ringcomm.relaxed.mixing import Compressed, Mix, PushSum
from ringcomm.relaxed.neighbourhood import Neighbours
from ringcomm.relaxed.pairs import Pairs
from ringcomm.relaxed.periodic import Periodic
from ringcomm.relaxed.rules import Mean
from ringcomm.topology import Topology, topology
from ringcomm.torch.relaxed.optimizer import RelaxedOptimizer, relaxed, replica_of
from ringcomm.wire_formats import WireFormat

_NEVER = 1 << 62  # steps
_ORDERS = ("adapt_then_combine", "combine_while_adapt")


class _Gossip(RelaxedOptimizer):
    """What Gossip adds to an optimizer's class: nothing but its name."""


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
    """An optimizer like ``optimizer`` that steps on this rank's gradients, and after its step averages the weights with
    those of its neighbours in a graph: x_i <- sum of W_ij x_j. A rank sends to few others, whatever their number; all
    come to agree in time, the sooner the larger the graph's spectral gap (``ringcomm show --topology ring``).

    The model (``global_weights()``, and what ``finish()`` leaves) is the mean of all replicas. On one host an
    all-reduce through shared memory costs less than most graphs' messages: gossip is for networks, "async" for slow
    ranks.

    Source: Lian et al. (D-PSGD), arXiv:1705.09056; "async": Lian et al. (AD-PSGD), arXiv:1710.06952; "push_sum": Assran
    et al. (SGP), arXiv:1811.10792; ``resync``: Chen et al. (Gossip-PGA), arXiv:2105.09080; ``compression``: Koloskova
    et al. (CHOCO-SGD), arXiv:1907.09356.

    Args:
        optimizer: any but LBFGS.
        topology: "ring", "exponential", "one_peer_exponential", "hypercube", "torus", "star", "complete", a name given
            to `ringcomm.register_topology`, or a `ringcomm.Topology`; for any number of ranks.
        mode: "sync": rounds, in which each waits for its neighbours. "push_sum": rounds on graphs whose edges may go
            one way. "async": replicas lie in memory that the host's ranks share, a rank averages with one neighbour,
            drawn at random, and nobody waits.
        every: steps between rounds.
        resync: all ranks average after so many steps; 0: never.
        order: "adapt_then_combine", or "combine_while_adapt": messages travel during the next step.
        compression: in "sync", a wire format such as ``Compression.topk(0.1)``: what travels is how the weights differ
            from what neighbours know of them. The topology must not change from round to round.
        gamma: of compression, the step towards the neighbours: default 1 for what loses little (int8), else 0.4.
        model: its floating buffers (BatchNorm's statistics) are averaged too.
        on_loss: in "async": "end", or "continue": ranks go on if one has died, as far as the launcher lets them.
        named_parameters: as DistributedOptimizer's; names for errors.
        process_set: the ranks; in "async", of one host.

    Raises:
        ValueError: arguments that are none, or do not go together; a graph that keeps no mean. MismatchError: ranks
            differ. UnsupportedError: "async", and ranks share no memory.
    """
    graph = _checked(topology, mode, every, resync, order, compression, gamma)
    made, name, parameters = relaxed(
        optimizer,
        _Gossip,
        named_parameters,
        process_set,
        topology=graph.name,
        mode=mode,
        every=every,
        resync=resync,
        order=order,
        compression=compression,
        gamma=gamma,
    )
    replica = replica_of(parameters, model)
    if mode == "async":
        made._method = Pairs(name, replica, graph, every, process_set, on_loss)
        return made
    if compression is not None and replica.dtype.itemsize != 4:
        raise ValueError("compression is of float32 weights, and there are float64 ones")
    means = Periodic(name, replica, Mean(), resync or _NEVER, process_set)
    count = replica.sizes[0]
    nbytes = count * replica.dtype.itemsize if compression is None else Compressed.capacity(compression, count)
    neighbours = Neighbours(f"{name}.gossip", graph, process_set, nbytes)
    mix: Any
    if mode == "push_sum":
        mix = PushSum(neighbours, replica.dtype)
    elif compression is None:
        mix = Mix(graph, neighbours, replica.dtype)
    else:
        step = gamma if gamma is not None else (1.0 if compression.name == "int8" else 0.4)
        mix = Compressed(graph, neighbours, count, compression, step)
        mix.begin_with(replica.now(0))
    made._method = GossipRounds(replica, mix, neighbours, every, order == _ORDERS[1], means)
    return made


def _checked(
    given: str | Topology, mode: str, every: int, resync: int, order: str, compression: Any, gamma: float | None
) -> Topology:
    if mode not in ("sync", "push_sum", "async"):
        raise ValueError(f'mode={mode!r}: "sync", "push_sum" or "async"')
    if order not in _ORDERS:
        raise ValueError(f"order={order!r}: {' or '.join(map(repr, _ORDERS))}")
    if every < 1 or resync < 0:
        raise ValueError(f"every={every}, resync={resync}: a positive number of steps, and one of 0 or more")
    if compression is not None and (mode != "sync" or not isinstance(compression, WireFormat)):
        raise ValueError(f'compression={compression!r}: a wire format such as Compression.int8, with mode="sync"')
    if compression is not None and order != _ORDERS[0]:
        raise ValueError("compression goes with order='adapt_then_combine' only")
    if gamma is not None and not 0 < gamma <= 1:
        raise ValueError(f"gamma={gamma}: in (0, 1]")
    if mode == "async" and (resync or order != _ORDERS[0]):
        raise ValueError('mode="async" has no rounds: resync and order do not go with it')
    return topology(given)
