"""Periodic averaging methods for NumPy arrays, for any framework's training loop.

Each public class checks its arguments and creates a `Periodic` or `Gossip` method on an
`ArrayReplica`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ringcomm._src.arrays.device.values import refuse_elsewhere
from ringcomm._src.decentralized.gossip import Gossip, checked
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
        for one in [*weights, *statistics]:
            refuse_elsewhere(one, "this averager")
            if not isinstance(one, np.ndarray) or one.dtype.kind not in "fcV" or not one.flags.writeable:
                what = f"{one.dtype} array" if isinstance(one, np.ndarray) else type(one).__name__
                raise ValueError(f"weights are writeable NumPy arrays of floating or complex dtypes, not a {what}")
        return ArrayReplica(weights, statistics, fragments)

    def _agreed(self, replica: Replica[Any], process_set: ProcessSet, **settings: Any) -> str:
        """Compares the arguments of all ranks, and returns a name for the method."""
        name, who = f"relaxed{next_number(process_set)}", type(self).__name__
        pairs = zip(replica.heads, replica.sizes, strict=True)
        sizes = [f"a fragment of {head} weights, {size} numbers in all" for head, size in pairs]
        require_equal_texts([agreed_text(method=who, **settings), *sizes], name, process_set, who)
        return name

    def step(self) -> None:
        """Counts a step of this rank, and exchanges the weights if an exchange is due."""
        self._method.stepped()

    def exchange_now(self) -> None:
        """Exchanges all weights between all ranks. Collective."""
        self._method.exchange_now()

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's counters and, if the method has one, its anchor, for an exact restart."""
        return self._method.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned. The caller restores the contents of the arrays."""
        self._method.load(state)


class PeriodicAverager(Exchanger):
    """Local SGD for NumPy arrays: periodically replaces the weights of all ranks by their mean.

    Source: Stich, "Local SGD converges fast and communicates little", arXiv:1805.09767.

    Args:
        arrays: this rank's weights, changed in place. All ranks start with the first rank's
            weights. Collective.
        every: steps between exchanges, or a time ("200ms"): see
            `ringcomm._src.decentralized.every.Every`.
        groups: replaces ``every``: ``{4: "host", 16: "all"}`` averages between this host's ranks
            every 4 steps, and between all ranks every 16 steps. Values may be process sets.
        overlap: continue with steps during the transfer; a round ends where the next one begins.
        statistics: further arrays to average.
        wire: "float16" or "bfloat16" between hosts.
        process_set: the ranks.

    Raises:
        ValueError: an argument is invalid.
        MismatchError: ranks give different arrays or settings.
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
    """DiLoCo and SlowMo for NumPy arrays: an outer optimizer periodically applies the mean change of the weights.

    Arguments as in :func:`ringcomm.torch.DiLoCo` and :class:`PeriodicAverager`.
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
    """Synchronous EASGD for NumPy arrays: periodically pulls weights and a centre towards each other.

    Arguments as in :func:`ringcomm.torch.EASGD` and :class:`PeriodicAverager`.
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

    Arguments as in :func:`ringcomm.torch.Gossip` with mode "sync", and as in
    :class:`PeriodicAverager`.
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
        how = checked(topology, "sync", every, resync, order, compression, gamma)
        replica = self._replica(arrays, statistics)
        self._method = Gossip(self._agreed(replica, process_set, **how.settings()), replica, how, process_set)


def outer_rule(
    lr: float, momentum: float, nesterov: bool, delay: int, blend: float, every: int | str, replica: Replica[Any]
) -> Outer:
    """Returns the rule of DiLoCo and SlowMo. Raises ValueError for arguments out of range."""
    if not lr > 0 or not 0 <= momentum < 1:
        raise ValueError(f"outer_lr={lr}, outer_momentum={momentum}: a rate above 0, and a momentum in [0, 1)")
    if delay < 0 or not 0 <= blend <= 1:
        raise ValueError(f"delay={delay}, blend={blend}: a delay of 0 or more steps, and a blend in [0, 1]")
    if delay and (isinstance(every, str) or delay >= every):
        raise ValueError(f"delay={delay}: a fragment must have arrived before it leaves again, every={every}")
    return Outer(lr, momentum, nesterov, blend if delay else None, replica.heads)


def elastic_rule(beta: float, process_set: ProcessSet, replica: Replica[Any]) -> Elastic:
    """Returns the rule of EASGD. Raises ValueError if beta is out of range."""
    if not 0 < beta <= 1:
        raise ValueError(f"beta={beta}: the pull of all ranks together is in (0, 1]")
    return Elastic(beta / process_set.size(), replica.heads)
