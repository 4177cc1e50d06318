"""The parameter store for NumPy arrays."""

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
    """Weights that ranks push gradients to, each at its own pace, for NumPy arrays. They are cut evenly over the memory
    of their servers. On a server's host whoever pushes applies the rule himself, under locks of 16 KB: no process, and
    no message; elsewhere he asks the server, whose worker thread applies it and answers, whatever its script does.
    Collective; ranks compare names and settings.

    Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014.

    Args:
        arrays: this rank's copies of the weights, by name, changed in place; the first rank's are what is begun with.
        rule: of `ringcomm.updates`. With Async and many ranks a momentum does harm (Mitliagkas et al., 1605.09774).
        consistency: `Async()`, `SSP(s)`, `SoftSync(S)`, `Sync()` or `Backup(S)`.
        servers: in whose memory the weights lie: "all", a number, or a list of ranks. They train as the others do, or
            call :meth:`serve` in place of that.
        scale: "none"; "inverse": a gradient that is t updates late moves the weights by 1/t; or a function of t.
        compensate: g + compensate g g (x - pulled) in place of g (DC-ASGD, arXiv:1609.08326); 0.04 is the paper's.
        on_loss: "end": a rank that died ends the others' waits with PeerLostError; "continue": on one host they go on
            without it.
        process_set: the ranks; with several hosts, all.
        across: with several hosts (or without shared memory) "service": servers are ranks of any host, and
            ``consistency`` is between all ranks. "host": each host has a store of its own, which costs a slow network
            less: ``servers`` and ``consistency`` are of each host's ranks, and after
            ``every`` steps of its first rank (or a time such as "200ms") the stores' weights become the mean of all, by
            adding how that differs from what was sent.

    Raises:
        ValueError: arguments that are none. MismatchError: ranks differ. UnsupportedError: "host", and ranks of a host
            share no memory.
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
        texts = [f"'{key}' {one.dtype} {one.shape}" for key, one in arrays.items()]
        how = f"ParameterStore, {rule.text()}, {consistency}, servers {servers}, every {every}, across {across}"
        require_equal_texts([how, *texts], name, process_set, "ParameterStore")
        options = StoreOptions(consistency, servers, scale, compensate, on_loss, every, across)
        self._method = Store(name, process_set, self._replica, [(slice(0, self._replica.sizes[0]), rule)], options)
        self._method.set_options(0, rule.options["lr"])

    def _flat(self, gradients: Mapping[str, np.ndarray[Any, Any]]) -> Flat:
        """Zeros where there is none."""
        unknown = gradients.keys() - set(self._names)
        if unknown:
            raise ValueError(f"there are no weights named {', '.join(sorted(unknown))}")
        flat, at = np.zeros_like(self._method.weights), 0
        for name, item in zip(self._names, self._replica.items(0), strict=True):
            if name in gradients:
                flat[at : at + item.size] = np.broadcast_to(host_copy(gradients[name]), item.shape).reshape(-1)
            at += item.size
        return flat

    def push_pull(self, gradients: Mapping[str, np.ndarray[Any, Any]], lr: float | None = None) -> None:
        """A step of this rank: hands in gradients of its arrays, waits as the consistency says, and takes the weights
        as they are then. ``lr``: in place of the rule's."""
        if lr is not None:
            self._method.set_options(0, lr)
        self._method.step(self._flat(gradients))

    def push(self, gradients: Mapping[str, np.ndarray[Any, Any]], lr: float | None = None) -> None:
        """The first half of :meth:`push_pull`. Where servers are asked by messages, it returns before they have
        answered, unless two earlier ones are under way; an error comes up in a later call."""
        if lr is not None:
            self._method.set_options(0, lr)
        self._method.push(self._flat(gradients))

    def pull(self) -> None:
        """The second half: waits as the consistency says, and takes the weights."""
        self._method.pull(self._method.due())

    def rows(self, name: str) -> Rows:
        """Rows of one of the arrays (an embedding), which can be pushed to and pulled without the others."""
        if name not in self._names:
            raise ValueError(f"there are no weights named {name}")
        number = self._names.index(name)
        items = self._replica.items(0)
        if items[number].ndim == 0 or items[number].dtype.kind == "c":
            raise ValueError(f"'{name}' has no rows of real numbers")
        return Rows(self._method, sum(one.size for one in items[:number]), items[number], self._replica.dtype)

    def serve(self) -> None:
        """In place of steps, on a rank that only serves: returns when all have finished, as :meth:`finish` does."""
        self.finish()

    def record(self) -> list[list[tuple[int, int, int]]]:
        """From now on, of every push of this rank: (shard, version read, version applied). Pushes to shards of at most
        16 KB come out bit for bit if they are made again in the order of their versions."""
        return self._method.record()

    def state_dict(self) -> dict[str, Any]:
        """This rank's shard with the rule's state, and its clock. Collective: nobody may push meanwhile."""
        return self._method.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes up what :meth:`state_dict` gave, on as many ranks. Collective."""
        self._method.load(state)


class Rows:
    """Of ``ParameterStore.rows``: the rows of an array of n rows, whose shapes are ``row``."""

    def __init__(self, store: Store, first: int, array: np.ndarray[Any, Any], dtype: Any) -> None:
        self._store, self._first, self._dtype = store, first, dtype
        self._many, self._row = array.shape[0], array.shape[1:]
        self._width = array.size // max(self._many, 1)

    def push(self, ids: Any, gradients: Any) -> None:
        """Applies the rule to these rows at once, whatever the consistency: it is no step. Momentum, decay and the like
        act on them alone, when they are pushed. Adam's correction of its start counts the updates of the 16 KB that a
        row lies in.

        Args:
            ids: integers, of any shape; one that comes several times gets the sum. gradients: of shape ``ids.shape +
                row``.

        Raises:
            IndexError: there is no such row.
        """
        once, where = np.unique(self._checked(ids), return_inverse=True)
        sums = np.zeros((len(once), self._width), self._dtype)
        np.add.at(sums, where, np.reshape(host_copy(gradients), (where.size, self._width)))
        self._store.rows(0, self._first + once * self._width, self._width, sums, None)

    def pull(self, ids: Any) -> np.ndarray[Any, Any]:
        """These rows as they are now: a new array of shape ``ids.shape + row``, float32 or float64. IndexError: there
        is no such row."""
        begins = self._first + self._checked(ids) * self._width
        result = np.empty((len(begins), self._width), self._dtype)
        self._store.rows(0, begins, self._width, None, result)
        return result.reshape(np.shape(ids) + self._row)

    def _checked(self, ids: Any) -> np.ndarray[Any, Any]:
        flat = np.asarray(host_copy(ids), np.int64).reshape(-1)
        if flat.size and not 0 <= flat.min() <= flat.max() < self._many:
            raise IndexError(f"rows {flat.min()} to {flat.max()}: there are {self._many}")
        return flat
