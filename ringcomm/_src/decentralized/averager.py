"""Periodic averaging methods for NumPy arrays, for any framework's training loop.

Each public class checks its arguments and creates a `Periodic` or `Gossip` method on an
`ArrayReplica`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ringcomm._src.arrays.device.values import require_host_memory
from ringcomm._src.decentralized.gossip import Gossip, checked_options
from ringcomm._src.decentralized.method import Exchanging
from ringcomm._src.decentralized.periodic import Groups, Periodic, agreed_text, wire_of
from ringcomm._src.decentralized.replicas import ArrayReplica, Replica, next_number
from ringcomm._src.decentralized.rules import Elastic, Mean, Outer
from ringcomm._src.decentralized.topology import Topology
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.training.plan_agreement import require_equal_texts


class Exchanger(Exchanging):
    """Base class of the periodic methods.

    Call :meth:`step` after each of this rank's steps. Ranks may make different numbers of steps.
    Use the object in a ``with`` statement, or call :meth:`finish`.
    """

    @staticmethod
    def _replica(weights: Sequence[Any], statistics: Sequence[Any], fragments: int = 1) -> Replica[Any]:
        for array in [*weights, *statistics]:
            require_host_memory(array, "this averager")
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "fcV" or not array.flags.writeable:
                what = f"{array.dtype} array" if isinstance(array, np.ndarray) else type(array).__name__
                raise ValueError(f"weights must be writeable NumPy arrays of floating or complex dtypes; got: {what}")
        return ArrayReplica(weights, statistics, fragments)

    def _agreed(self, replica: Replica[Any], process_set: ProcessSet, **settings: Any) -> str:
        """Compares the arguments of all ranks, and returns a name for the method."""
        name, method_name = f"relaxed{next_number(process_set)}", type(self).__name__
        pairs = zip(replica.heads, replica.sizes, strict=True)
        sizes = [f"a fragment of {head} weights, {size} numbers in all" for head, size in pairs]
        require_equal_texts([agreed_text(method=method_name, **settings), *sizes], name, process_set, method_name)
        return name

    def step(self) -> None:
        """Counts a step of this rank, and exchanges the weights if an exchange is due."""
        self._method.stepped()

    def exchange_now(self) -> None:
        """Exchanges all weights between all ranks. Collective."""
        self._method.exchange_now()

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's counters, and the anchor if there is one, for an exact restart."""
        return self._method.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned. The caller restores the arrays' contents."""
        self._method.load(state)


class PeriodicAverager(Exchanger):
    """Local SGD for NumPy arrays: periodically replaces the weights of all ranks by their mean.

    Source: Stich, "Local SGD converges fast and communicates little", arXiv:1805.09767.

    Parameters
    ----------
    arrays : Sequence[np.ndarray[Any, Any]]
        This rank's weights, of any shapes and of floating or complex dtypes, changed in place. The
        constructor is collective: all ranks start with the first rank's weights.
    every : int | str
        Steps between exchanges, or a time ("200ms", "1.5s" or "2min"). With a time, a rank
        exchanges at the end of its first step after that time.
    groups : Groups | None
        Replaces ``every``: ``{4: "host", 16: "all"}`` averages between this host's ranks every 4
        steps, and between all ranks every 16 steps. Values may be process sets.
    overlap : bool
        Continue with steps during an exchange. Its result is used when the next exchange begins.
    statistics : Sequence[np.ndarray[Any, Any]]
        Further arrays to average, for example running means.
    wire : str | None
        Data format between hosts: "float16", "bfloat16", or None for the dtype of the weights.
    process_set : ProcessSet
        The ranks that take part.

    Raises
    ------
    ValueError
        An argument is invalid.
    MismatchError
        Ranks give different arrays or settings.

    Examples
    --------
    >>> ringcomm.init()
    >>> w = np.zeros(3)
    >>> with ringcomm.PeriodicAverager([w], every=2) as averager:
    ...     for _ in range(2):
    ...         w += rank  # a training step
    ...         averager.step()
    >>> print(w)
    [1. 1. 1.]
    """

    def __init__(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        every: int | str = 8,
        *,
        groups: Groups | None = None,
        overlap: bool = False,
        statistics: Sequence[np.ndarray[Any, Any]] = (),
        wire: Any = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        replica, wire = self._replica(arrays, statistics), wire_of(wire, narrow_only=True)
        delay = None if overlap else 0
        settings = {"every": every, "groups": groups and sorted(groups), "overlap": overlap, "wire": wire}
        name = self._agreed(replica, process_set, **settings)
        self._method = Periodic(name, replica, Mean(overlap), every, process_set, groups, delay, wire=wire)


class OuterStep(Exchanger):
    """DiLoCo and SlowMo for NumPy arrays: an outer optimizer steps on the weights' mean change.

    Source: Douillard et al., arXiv:2311.08105 and arXiv:2501.18512; Wang et al. (SlowMo),
    arXiv:1910.00643.

    Parameters
    ----------
    arrays, every, statistics, process_set
        As in :class:`PeriodicAverager`. Every weight is exchanged once per ``every``.
    outer_lr : float
        Learning rate of the outer optimizer, an SGD; positive.
    outer_momentum : float
        Momentum of the outer optimizer, in [0, 1).
    nesterov : bool
        Use Nesterov's momentum.
    fragments : int
        Parts of about equal size into which the weights are divided. Each is exchanged separately.
    delay : int
        Steps from the beginning of an exchange to the use of its result; less than ``every``.
    blend : float
        With a delay, the share of this rank's weights in its new weights, in [0, 1].
    wire : str | WireFormat | None
        Data format between hosts: "float16", "bfloat16", or a wire format, for example
        ``Compression.int8``.

    Raises
    ------
    ValueError
        An argument is invalid.
    MismatchError
        Ranks give different arrays or settings.

    Examples
    --------
    >>> ringcomm.init()
    >>> w = np.zeros(3)
    >>> with ringcomm.OuterStep([w], every=2, outer_lr=1.0, outer_momentum=0.0) as averager:
    ...     for _ in range(2):
    ...         w += rank  # a training step
    ...         averager.step()
    >>> print(w)
    [1. 1. 1.]
    """

    def __init__(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        every: int | str = 100,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        nesterov: bool = True,
        *,
        fragments: int = 1,
        delay: int = 0,
        blend: float = 0.5,
        statistics: Sequence[np.ndarray[Any, Any]] = (),
        wire: Any = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        replica = self._replica(arrays, statistics, fragments)
        rule = outer_rule(outer_lr, outer_momentum, nesterov, delay, blend, every, replica)
        wire = wire_of(wire, narrow_only=False)
        outer = (outer_lr, outer_momentum, nesterov, blend)
        name = self._agreed(replica, process_set, every=every, outer=outer, delay=delay, wire=wire)
        self._method = Periodic(name, replica, rule, every, process_set, delay=delay, wire=wire)


class ElasticAverager(Exchanger):
    """Synchronous EASGD for NumPy arrays: pulls weights and a centre towards each other.

    Source: Zhang, Choromanska and LeCun, arXiv:1412.6651; overlapped: You, Buluc and Demmel,
    arXiv:1708.02983.

    Parameters
    ----------
    arrays, every, statistics, process_set
        As in :class:`PeriodicAverager`.
    beta : float
        The pull of all ranks together, in (0, 1]: x <- x - beta/p (x - centre) on each rank.
    overlap : bool
        Send weights during the next step.
    wire : str | WireFormat | None
        As in :class:`OuterStep`.

    Raises
    ------
    ValueError
        An argument is invalid.
    MismatchError
        Ranks give different arrays or settings.

    Examples
    --------
    >>> ringcomm.init()
    >>> w = np.zeros(3)
    >>> with ringcomm.ElasticAverager([w], every=2, overlap=False) as averager:
    ...     for _ in range(2):
    ...         w += 1  # a training step
    ...         averager.step()
    ...     distance = averager.stats()["distance"]  # change of the weights by the last exchange
    >>> print(f"{distance:.1f}")
    0.9
    """

    def __init__(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        every: int | str = 10,
        beta: float = 0.9,
        *,
        overlap: bool = True,
        statistics: Sequence[np.ndarray[Any, Any]] = (),
        wire: Any = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        replica = self._replica(arrays, statistics)
        rule = elastic_rule(beta, process_set, replica)
        wire = wire_of(wire, narrow_only=False)
        name = self._agreed(replica, process_set, every=every, beta=beta, overlap=overlap, wire=wire)
        self._method = Periodic(name, replica, rule, every, process_set, delay=int(overlap), wire=wire)


class GossipAverager(Exchanger):
    """Gossip for NumPy arrays: averages with the neighbours in a graph after a step.

    Source: Lian et al. (D-PSGD), arXiv:1705.09056; ``resync``: Chen et al. (Gossip-PGA),
    arXiv:2105.09080; ``compression``: Koloskova et al. (CHOCO-SGD), arXiv:1907.09356.

    Parameters
    ----------
    arrays, statistics, process_set
        As in :class:`PeriodicAverager`.
    topology : str | Topology
        The graph: a name that ``ringcomm show --topology list`` prints, or a :class:`Topology`.
    every : int
        Steps between rounds.
    resync : int
        Number of steps between averages over all ranks; 0: no averages over all ranks.
    order : str
        "adapt_then_combine": a round ends before the next step begins. "combine_while_adapt": its
        messages are sent during the next step.
    compression : WireFormat | None
        A wire format, for example ``Compression.int8``, for float32 weights.
    gamma : float | None
        Step size of a round with compression, in (0, 1]. None: 1 for int8, 0.4 for other formats.

    Raises
    ------
    ValueError
        An argument is invalid, or the graph does not preserve the mean.
    MismatchError
        Ranks give different arrays or settings.

    Examples
    --------
    >>> ringcomm.init()
    >>> w = np.zeros(3)
    >>> with ringcomm.GossipAverager([w], topology="ring") as averager:
    ...     w += rank  # a training step
    ...     averager.step()
    >>> print(w)
    [0.5 0.5 0.5]
    """

    def __init__(
        self,
        arrays: Sequence[np.ndarray[Any, Any]],
        topology: str | Topology = "one_peer_exponential",
        every: int = 1,
        resync: int = 0,
        order: str = "adapt_then_combine",
        compression: Any = None,
        gamma: float | None = None,
        *,
        statistics: Sequence[np.ndarray[Any, Any]] = (),
        process_set: ProcessSet = global_process_set,
    ) -> None:
        options = checked_options(topology, "sync", every, resync, order, compression, gamma)
        replica = self._replica(arrays, statistics)
        self._method = Gossip(self._agreed(replica, process_set, **options.settings()), replica, options, process_set)


def outer_rule(
    lr: float, momentum: float, nesterov: bool, delay: int, blend: float, every: int | str, replica: Replica[Any]
) -> Outer:
    """Returns the rule of DiLoCo and SlowMo. Raises ValueError for arguments out of range."""
    if not lr > 0 or not 0 <= momentum < 1:
        raise ValueError(f"outer_lr={lr}, outer_momentum={momentum}: the rate must be positive, the momentum in [0, 1)")
    if delay < 0 or not 0 <= blend <= 1:
        raise ValueError(f"delay={delay}, blend={blend}: the delay must be 0 or more steps, the blend in [0, 1]")
    if delay and (isinstance(every, str) or delay >= every):
        raise ValueError(f"delay={delay}, every={every}: with a delay, every must be a larger number of steps")
    return Outer(lr, momentum, nesterov, blend if delay else None, replica.heads)


def elastic_rule(beta: float, process_set: ProcessSet, replica: Replica[Any]) -> Elastic:
    """Returns the rule of EASGD. Raises ValueError if beta is out of range."""
    if not 0 < beta <= 1:
        raise ValueError(f"beta={beta}: beta, the pull of all ranks together, must be in (0, 1]")
    return Elastic(beta / process_set.size(), replica.heads)
