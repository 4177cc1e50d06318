"""Gossip: every rank averages its weights with its neighbours only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ringcomm._src.decentralized.async_gossip import AsyncGossip
from ringcomm._src.decentralized.gossip import Gossip as Rounds
from ringcomm._src.decentralized.gossip import checked_options
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
    """Returns an optimizer that steps locally, then averages weights with neighbours in a graph.

    Rank i computes x_i <- sum over j of W_ij x_j, with the graph's mixing matrix W. A rank sends to
    few ranks, in jobs of any size. The ranks' weights converge to each other, and faster if the
    graph's spectral gap is larger (``ringcomm show --topology ring``).

    ``global_weights()``, and the weights after ``finish()``, are the mean of all replicas. On one
    host an all-reduce through shared memory costs less than the messages of most graphs. So use the
    mode "sync" between hosts, and "async" if some ranks of a host are slow.

    Source: Lian et al. (D-PSGD), arXiv:1705.09056; "async": Lian et al. (AD-PSGD),
    arXiv:1710.06952; ``resync``: Chen et al. (Gossip-PGA), arXiv:2105.09080; ``compression``:
    Koloskova et al. (CHOCO-SGD), arXiv:1907.09356.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Any optimizer except LBFGS.
    topology : str | Topology
        "ring", "exponential", "one_peer_exponential", "hypercube", "torus", "star", "complete", a
        name given to `ringcomm.register_topology`, or a `ringcomm.Topology`; for any number of
        ranks.
    mode : str
        "sync": rounds, in which each rank waits for its neighbours. "async": replicas are in memory
        that the host's ranks share; a rank averages with one random neighbour, and no rank waits.
    every : int
        Steps between rounds.
    resync : int
        Number of steps between averages over all ranks; 0: no averages over all ranks.
    order : str
        "adapt_then_combine": a round ends before the next step begins. "combine_while_adapt": its
        messages are sent during the next step.
    compression : WireFormat | None
        In "sync", a wire format, for example ``Compression.topk(0.1)``. It encodes the difference
        between the weights and the neighbours' copies of them. The topology must not change from
        round to round, as the default does with more than two ranks.
    gamma : float | None
        With compression, the size of the step towards the neighbours' mean. Default: 1 for formats
        that lose little (int8), else 0.4.
    model : torch.nn.Module | None
        Its floating-point buffers (BatchNorm's statistics) are averaged too.
    on_loss : str
        In "async", selects the effect of the death of a rank: "end" (the other ranks get an error)
        or "continue" (they continue; needs ``ringrun --survive``).
    named_parameters : Iterable[tuple[str, torch.Tensor]] | None
        Parameter names for error messages, as in DistributedOptimizer.
    process_set : ProcessSet
        The ranks that take part. In "async" they must be on one host.

    Returns
    -------
    torch.optim.Optimizer
        An object of a subclass of the optimizer's class. Use it in a ``with`` statement, or
        call ``finish()`` after the last step.

    Raises
    ------
    ValueError
        Arguments are invalid, or exclude each other; the graph does not preserve the mean.
    MismatchError
        Every rank gets the error if parameters or settings differ between ranks.
    UnsupportedError
        The mode is "async", and ranks share no memory.

    Examples
    --------
    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> with hvd.Gossip(torch.optim.SGD([weight], lr=1.0), topology="ring") as optimizer:
    ...     (weight * (rank + 1)).sum().backward()
    ...     _ = optimizer.step()
    >>> weight.tolist()  # the mean of -1 and -2
    [-1.5, -1.5]
    """
    options = checked_options(topology, mode, every, resync, order, compression, gamma)
    made, name, parameters = relaxed(optimizer, "Gossip", named_parameters, process_set, **options.settings())
    replica = replica_of(parameters, model)
    if mode == "async":
        made._method = AsyncGossip(name, replica, options.graph, every, process_set, on_loss)
    else:
        made._method = Rounds(name, replica, options, process_set)
    return made
