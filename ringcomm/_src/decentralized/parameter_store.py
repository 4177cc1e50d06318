"""The parameter store for NumPy arrays: the public interface of `Store`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ringcomm._src.arrays.device.values import host_copy
from ringcomm._src.decentralized.consistency import Async, Consistency
from ringcomm._src.decentralized.method import Exchanging
from ringcomm._src.decentralized.replicas import ArrayReplica, Flat, next_number
from ringcomm._src.decentralized.store import Store
from ringcomm._src.decentralized.store_options import Scale, StoreOptions
from ringcomm._src.decentralized.updates import SGD, Update
from ringcomm._src.named.process_sets import ProcessSet, global_process_set
from ringcomm._src.training.plan_agreement import require_equal_texts


class ParameterStore(Exchanging):
    """A parameter store for NumPy arrays: ranks push gradients, and pull shared weights.

    Each rank does this at its own pace. The constructor is collective. The weights are distributed
    evenly over the memory of their servers. On a server's host, the rank that pushes applies the
    rule itself; each 16 KB stripe of the weights has a lock. A rank on another host sends the
    gradient to the server. The server's worker thread applies it and replies, independently of the
    server's Python code. The constructor compares names and settings between the ranks.

    Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.

    Parameters
    ----------
    arrays : Mapping[str, np.ndarray[Any, Any]]
        This rank's copies of the weights, by name, changed in place: writeable, of any shapes and
        of floating or complex dtypes. The first rank's weights are the initial ones.
    rule : Update | None
        A rule of `ringcomm.updates`; None: ``SGD()``. With Async and many ranks, momentum harms
        convergence (Mitliagkas et al., arXiv:1605.09774).
    consistency : Consistency | None
        ``Async()`` (the default), ``SSP(s)``, ``SoftSync(n)``, ``Sync()`` or ``Backup(n)``.
    servers : str | int | Sequence[int]
        The ranks that store the weights in their memory: "all", a number, or a list of ranks. They
        train as the other ranks do, or call :meth:`serve` instead.
    scale : str | Callable[[int], float]
        Factor of the learning rate for a gradient if the weights had t updates since the rank
        pulled them: "none" (1), "inverse" (1/t), or a function of t.
    compensate : float
        If not 0, g + compensate g g (x - pulled) replaces the gradient g. Here x are the current
        weights, and ``pulled`` those that this rank has pulled. Source: DC-ASGD, arXiv:1609.08326,
        which uses 0.04.
    on_loss : str
        After a rank has died: "end": waiting ranks raise PeerLostError; "continue": on one host,
        the other ranks continue without it.
    process_set : ProcessSet
        The ranks that take part. With several hosts, the set must contain all ranks.
    every : int | str
        With ``across="host"``: interval of the averages over the hosts, as a number of steps of a
        host's first rank, or as a time ("200ms").
    across : str
        Applies with several hosts, or without shared memory. "service": servers are ranks of any
        host, and ``consistency`` holds between all ranks. "host": each host has a separate store,
        which loads a slow network less. Then ``servers`` and ``consistency`` apply to each host's
        ranks. At intervals of ``every``, the mean of all stores replaces their weights: each
        store adds the mean minus the weights that it sent.

    Raises
    ------
    ValueError
        An argument is invalid.
    MismatchError
        Ranks give different arguments.
    UnsupportedError
        ``across`` is "host", and ranks of a host share no memory.

    Examples
    --------
    >>> ringcomm.init()
    >>> w = np.zeros(3)
    >>> rule, consistency = ringcomm.updates.SGD(lr=1.0), ringcomm.Sync()
    >>> with ringcomm.ParameterStore({"w": w}, rule, consistency) as store:
    ...     store.push_pull({"w": np.full(3, float(rank))})  # w -= lr * (mean of the gradients)
    >>> print(w)
    [-0.5 -0.5 -0.5]
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        rule: Update | None = None,
        consistency: Consistency | None = None,
        servers: str | int | Sequence[int] = "all",
        scale: Scale = "none",
        compensate: float = 0.0,
        on_loss: str = "end",
        process_set: ProcessSet = global_process_set,
        every: int | str = 16,
        across: str = "service",
    ) -> None:
        rule, consistency = rule or SGD(), consistency or Async()
        self._names = list(arrays)
        self._replica = ArrayReplica(list(arrays.values()))
        name = f"store{next_number(process_set)}"
        texts = [f"'{key}' {array.dtype} {array.shape}" for key, array in arrays.items()]
        settings = f"ParameterStore, {rule.text()}, {consistency}, servers {servers}, every {every}, across {across}"
        require_equal_texts([settings, *texts], name, process_set, "ParameterStore")
        options = StoreOptions(consistency, servers, scale, compensate, on_loss, every, across)
        self._method = Store(name, process_set, self._replica, [(slice(0, self._replica.sizes[0]), rule)], options)
        self._method.set_options(0, rule.options["lr"])

    def _flat(self, gradients: Mapping[str, np.ndarray[Any, Any]]) -> Flat:
        """Returns the gradients as one flat array, with zeros for arrays without a gradient."""
        unknown = gradients.keys() - set(self._names)
        if unknown:
            raise ValueError(f"the store has no weights named {', '.join(sorted(unknown))}")
        flat, at = np.zeros_like(self._method.weights), 0
        for name, item in zip(self._names, self._replica.items(0), strict=True):
            if name in gradients:
                flat[at : at + item.size] = np.broadcast_to(host_copy(gradients[name]), item.shape).reshape(-1)
            at += item.size
        return flat

    def push_pull(self, gradients: Mapping[str, np.ndarray[Any, Any]], lr: float | None = None) -> None:
        """Makes a step: pushes gradients, waits as the consistency requires, and pulls the weights.

        Parameters
        ----------
        gradients : Mapping[str, np.ndarray[Any, Any]]
            Gradients by the names of the arrays; a missing gradient counts as zeros.
        lr : float | None
            Replaces the rule's learning rate, also for later steps.

        Raises
        ------
        ValueError
            A name is unknown, or this rank is a dedicated server.
        PeerLostError
            A rank has died, and ``on_loss`` is "end".
        """
        if lr is not None:
            self._method.set_options(0, lr)
        self._method.step(self._flat(gradients))

    def push(self, gradients: Mapping[str, np.ndarray[Any, Any]], lr: float | None = None) -> None:
        """Pushes gradients: the first half of :meth:`push_pull`.

        With servers on other hosts, it returns before they reply, unless two earlier pushes are
        unfinished. A later call raises the errors.
        """
        if lr is not None:
            self._method.set_options(0, lr)
        self._method.push(self._flat(gradients))

    def pull(self) -> None:
        """Waits as the consistency requires, and pulls: the second half of :meth:`push_pull`."""
        self._method.pull(self._method.due())

    def rows(self, name: str) -> Rows:
        """Returns the rows of one array (an embedding), which are pushed and pulled separately.

        Raises ValueError if the array is unknown, complex, or has no dimension.
        """
        if name not in self._names:
            raise ValueError(f"the store has no weights named {name}")
        number = self._names.index(name)
        items = self._replica.items(0)
        if items[number].ndim == 0 or items[number].dtype.kind == "c":
            raise ValueError(f"'{name}' must have a real dtype and at least one dimension, so that it has rows")
        return Rows(self._method, sum(item.size for item in items[:number]), items[number], self._replica.dtype)

    def serve(self) -> None:
        """Serves on a dedicated server, without steps. Returns when all ranks have finished."""
        self.finish()

    def record(self) -> list[list[tuple[int, int, int]]]:
        """Starts a log of this rank's pushes: (shard, version read, version applied).

        A shard's version is the number of changes that have been applied to it.
        For shards of at most 16 KB, repeating the pushes in the order of their versions gives the
        same bits.
        """
        return self._method.record()

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's shard of the weights, its rule's state, and the step count.

        Collective. No rank may push at the same time.
        """
        return self._method.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned, on the same number of ranks. Collective."""
        self._method.load(state)


class Rows:
    """The rows of an array of the store. The array has n rows of shape ``row``."""

    def __init__(self, store: Store, first: int, array: np.ndarray[Any, Any], dtype: Any) -> None:
        self._store, self._first, self._dtype = store, first, dtype
        self._row_count, self._row = array.shape[0], array.shape[1:]
        self._width = array.size // max(self._row_count, 1)

    def push(self, ids: Any, gradients: Any) -> None:
        """Applies the rule to these rows immediately, for any consistency.

        A push of rows does not count as a step.

        Momentum, weight decay and similar terms change the given rows only, at the time of the
        push. Adam's bias correction counts the updates of the 16 KB stripe that contains the row.

        Parameters
        ----------
        ids : array_like
            Integers, of any shape; the gradients of a repeated id are added.
        gradients : array_like
            Array of shape ``ids.shape + row``.

        Raises
        ------
        IndexError
            A row does not exist.
        """
        unique_ids, inverse = np.unique(self._checked(ids), return_inverse=True)
        sums = np.zeros((len(unique_ids), self._width), self._dtype)
        np.add.at(sums, inverse, np.reshape(host_copy(gradients), (inverse.size, self._width)))
        self._store.rows(0, self._first + unique_ids * self._width, self._width, sums, None)

    def pull(self, ids: Any) -> np.ndarray[Any, Any]:
        """Returns the current rows as a new array of shape ``ids.shape + row``, float32 or float64.

        Raises IndexError if a row does not exist.
        """
        begins = self._first + self._checked(ids) * self._width
        result = np.empty((len(begins), self._width), self._dtype)
        self._store.rows(0, begins, self._width, None, result)
        return result.reshape(np.shape(ids) + self._row)

    def _checked(self, ids: Any) -> np.ndarray[Any, Any]:
        flat = np.asarray(host_copy(ids), np.int64).reshape(-1)
        if flat.size and not 0 <= flat.min() <= flat.max() < self._row_count:
            raise IndexError(f"rows {flat.min()} to {flat.max()}: the array has {self._row_count} rows")
        return flat
