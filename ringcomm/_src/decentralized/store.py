"""A parameter store: each rank pushes gradients to shared weights, and pulls the weights.

`ParameterStore` and the torch optimizers wrap a `Store`, which combines `Shards` with a consistency
model.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ringcomm._src.core import _core
from ringcomm._src.decentralized.distributed_workers import DistributedWorkers, is_distributed
from ringcomm._src.decentralized.host_averaging import HostAveraging, host_sets
from ringcomm._src.decentralized.method import Method
from ringcomm._src.decentralized.replicas import Flat, Replica
from ringcomm._src.decentralized.shards import AT_ANY_TIME, LOST, Due, Shards
from ringcomm._src.decentralized.store_options import StoreOptions, scale_of, servers_of
from ringcomm._src.decentralized.updates import Update
from ringcomm._src.decentralized.workers import FINISHED, Workers
from ringcomm._src.named.process_sets import ProcessSet

_MAX_IN_FLIGHT = 2  # pushes without a reply from other hosts


class Store(Method):
    """The weights of a replica in a parameter store, in parts with separate rules. Collective.

    All ranks start with the first rank's weights.

    Parameters
    ----------
    name : str
        The same on all ranks, and used by no other store.
    replica : Replica[Any]
        This rank's copy, in one fragment.
    parts : Sequence[tuple[slice, Update]]
        (slice, rule) that cover the weights. With the rule "get", the store only gathers gradients;
        dedicated servers apply them in Python (`Shards.own_shard`).
    cuts : Sequence[Sequence[int]] | None
        Positions at which each part may be cut; empty: any position.
    """

    has_own_model = True

    def __init__(
        self,
        name: str,
        process_set: ProcessSet,
        replica: Replica[Any],
        parts: Sequence[tuple[slice, Update]],
        options: StoreOptions,
        cuts: Sequence[Sequence[int]] | None = None,
    ) -> None:
        consistency, servers, scale, compensate, on_loss, every, across = options
        if across not in ("service", "host"):
            raise ValueError(f'across={across!r}: must be "service" or "host"')
        self.replica, self.consistency, leaders = replica, consistency, None
        self.weights = weights = replica.broadcast_initial(0, f"{name}.start", process_set)
        if across == "host":
            process_set, leaders = host_sets(process_set)
        in_python = any(rule.rule == "get" for _, rule in parts)
        if in_python and leaders is not None:
            raise ValueError(f'{name}: across="host" needs an update rule with a native implementation')
        gather_count = consistency.many(process_set.size()) or int(in_python)
        self._scale, self._gathers = scale_of(scale), gather_count > 0
        if compensate < 0 or (compensate and gather_count):
            raise ValueError(f"compensate={compensate}: must be 0 or more, and 0 if the consistency gathers gradients")
        owners = servers_of(servers, process_set)
        self.workers = self._workers(name, process_set, owners, across, on_loss)
        self._dedicated_servers = owners if in_python or not self.workers.threaded else []
        if len(self._dedicated_servers) == process_set.size():
            reason = "a rule without a native implementation" if in_python else "MPI without MPI_THREAD_MULTIPLE"
            raise ValueError(f"{name}: {reason} needs dedicated servers: set servers= to some of the ranks, not all")
        self.rules = [rule.core() for _, rule in parts]
        for rule in self.rules:
            rule.set("compensate", compensate)
        self.shards = [
            Shards(f"{name}.{i}", self.workers, weights[part], rule, gather_count, consistency.of_step, owners, ends)
            for i, ((part, _), rule, ends) in enumerate(
                zip(parts, self.rules, cuts or itertools.repeat(()), strict=False)
            )
        ]
        self._parts, self._dtype = [part for part, _ in parts], weights.dtype
        self._pulled = weights.copy() if compensate else None
        self._host_averaging = HostAveraging(name, leaders, weights, every, self._read, self._add, self._put)
        self.exchanges = self.bytes = 0
        self._in_flight: deque[list[Callable[[], None]]] = deque()  # pushes, oldest first
        super().__init__(name, process_set, self.workers.leave)

    @staticmethod
    def _workers(name: str, process_set: ProcessSet, owners: list[int], across: str, on_loss: str) -> Any:
        if across == "host" or not is_distributed(process_set):
            return Workers(name, process_set, on_loss)
        if on_loss != "end":
            raise ValueError(f"on_loss={on_loss!r}: ranks can continue after a death only if all ranks share memory")
        return DistributedWorkers(name, process_set, owners)

    # ---- a worker's steps --------------------------------------------------------------------------------------------
    def set_options(self, number: int, lr: float, **options: float) -> None:
        """Sets the options of a part's rule for this rank's next pushes."""
        self.shards[number].lr = lr
        for name, value in options.items():
            self.rules[number].set(name, value)
        self.rules[number].set("lr", lr)

    def push(self, gradient: Flat | None) -> None:
        """Pushes a step's gradient (None: skipped after an overflow).

        The caller must not change the gradient until it has pushed two more.
        """
        self._collect(_MAX_IN_FLIGHT - 1 if self.workers.distributed else 0)
        self._in_flight.append(self._request_push(gradient, None))

    def _request_push(self, gradient: Flat | None, result: Flat | None) -> list[Callable[[], None]]:
        self._require_worker()
        next_step, requests = self.steps + 1, []
        for number, (part, shards) in enumerate(zip(self._parts, self.shards, strict=True)):
            clock = next_step if number == len(self.shards) - 1 else None
            output = None if result is None else result[part]
            part_gradient = gradient[part] if gradient is not None else None
            if part_gradient is None and self._gathers and self.consistency.of_step:
                part_gradient = np.zeros(part.stop - part.start, self._dtype)
            if part_gradient is None:
                requests.append(shards.request_pull(output, clock))
            elif self._gathers:
                requests.append(shards.request_gather(part_gradient, self.steps, self._scale, clock))
            else:
                pulled = None if self._pulled is None else self._pulled[part]
                requests.append(shards.request_apply(part_gradient, output, pulled, self._scale, clock=clock))
        if gradient is not None:
            self.exchanges += 1
            self.bytes += gradient.nbytes
        self.steps = next_step
        self.workers.advance(next_step)
        return requests

    def _require_worker(self) -> None:
        if self.workers.rank in self._dedicated_servers:
            raise ValueError(f"{self.name}: rank {self.workers.rank} is a dedicated server: call serve()")

    def _collect(self, limit: int) -> None:
        """Waits for all pushes except the last ``limit``."""
        while len(self._in_flight) > limit:
            for reply in self._in_flight.popleft():
                reply()

    def due(self) -> Due | None:
        """Returns the condition for this rank's next step, or None."""
        if self.consistency.of_step:
            return AT_ANY_TIME, self.steps
        if self.consistency.staleness is not None:
            return self.steps - self.consistency.staleness, 0
        return None

    def global_weights(self) -> AbstractContextManager[None]:
        """Returns a context manager in which the replica holds the current weights.

        The next gradient is still computed from the weights that were pulled.
        """
        current = np.empty_like(self.weights)
        self._read(current)
        return self.replica.temporarily([current])

    def _read(self, result: Flat) -> None:
        for part, shards in zip(self._parts, self.shards, strict=True):
            shards.read(result[part])

    def pull(self, due: Due | None = None) -> None:
        """Waits until ``due``, then pulls the weights, from which the next gradient is computed."""
        parts = zip(self._parts, self.shards, strict=True)
        self._in_flight.append([shards.request_pull(self.weights[part], due=due) for part, shards in parts])
        self._finish_pull()
        if due is not None and due[1] > 0:
            # All shards have completed min(groups) steps, and would drop gradients of these steps.
            # This rank therefore skips the steps.
            self.steps = max(self.steps, min(self._groups()))
            self.workers.advance(self.steps)

    def _finish_pull(self) -> None:
        """Waits for all requests, and writes the pulled weights to the replica."""
        self._collect(0)
        if self._pulled is not None:
            self._pulled[:] = self.weights
        self.replica.write(0, self.weights)

    def exchange_now(self) -> None:
        self.pull()

    def rows(self, number: int, begins: Any, width: int, gradient: Flat | None, result: Flat | None) -> None:
        """Applies a part's rule immediately to rows of ``width`` elements, or reads the rows."""
        rule = self.rules[number] if gradient is not None else _core.RuleOptions("get")
        self.shards[number].rows(rule, begins, width, gradient, result)

    def _add(self, change: Flat) -> None:
        self._apply_all(_core.RuleOptions("add", scale=1.0), change)

    def _put(self, weights: Flat) -> None:
        self._apply_all(_core.RuleOptions("put"), weights)

    def _apply_all(self, rule: _core.RuleOptions, flat: Flat) -> None:
        for part, shards in zip(self._parts, self.shards, strict=True):
            shards.change(rule, flat[part])

    def step(self, gradient: Flat | None) -> None:
        """Pushes, waits as the consistency requires, and pulls."""
        self._host_averaging.stepped()
        is_immediate = not self._gathers and self.consistency.staleness is None
        self._in_flight.append(self._request_push(gradient, self.weights if is_immediate else None))
        if is_immediate:
            self._finish_pull()
        else:
            self.pull(self.due())

    def _groups(self) -> list[int]:
        return [group for shards in self.shards for group in shards.groups()] or [self.steps]

    def apply_gathered(self) -> None:
        for shards in self.shards:
            shards.apply_gathered()

    # ---- the end -----------------------------------------------------------------------------------------------------
    def _finish(self, serve: Callable[[], None] = lambda: None) -> None:
        """Calls ``serve``, waits until all ranks have finished, and pulls the final weights."""
        self._collect(0)
        if self.workers.distributed:
            self.workers.advance(None)
            self._in_flight.append([shards.request_pull(None, FINISHED) for shards in self.shards])
            self.apply_gathered()
            serve()
            self.pull((LOST, 0))
        else:

            def participate(until: Callable[[], bool]) -> None:
                serve()
                self._host_averaging.participate(until)

            self.workers.finish(participate, self.apply_gathered)
            self._host_averaging.finish()
            self.workers.barrier()
            self.pull()
        self.workers.detach()

    # ---- statistics and state ----------------------------------------------------------------------------------------
    @property
    def updates(self) -> int:
        """Number of all ranks' updates that have been applied, as known to this rank."""
        return max((version for shards in self.shards for version in shards.versions()), default=self.steps)

    def stats(self) -> dict[str, Any]:
        more = {
            "staleness": dict(sorted(sum((shards.staleness for shards in self.shards), Counter()).items())),
            "dropped": sum(shards.dropped for shards in self.shards),
            "broken_locks": sum(shards.broken() for shards in self.shards),
            "lost": self.workers.lost(),
        }
        return self._stats(self.exchanges, self.workers.waited, self.bytes, **more, **self._host_averaging.stats())

    def record(self) -> list[list[tuple[int, int, int]]]:
        """Starts a log of pushes, one list per part: (shard, version read, version applied)."""
        for shards in self.shards:
            shards.log = []
        return [shards.log for shards in self.shards if shards.log is not None]

    def state(self) -> dict[str, Any]:
        """Returns this rank's shards and clock. Collective: no rank may push meanwhile."""
        self.workers.barrier()
        memories = [shards.own_bytes() for shards in self.shards]
        state = {"clock": self.steps, "shards": [None if memory is None else memory.copy() for memory in memories]}
        self.workers.barrier()
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned. Collective."""
        self.workers.barrier()
        for shards, saved in zip(self.shards, state["shards"], strict=True):
            own = shards.own_bytes()
            if (own is None) != (saved is None) or (own is not None and own.shape != saved.shape):
                raise ValueError(f"{self.name}: the state was saved by another number of ranks, or for other weights")
            if own is not None:
                own[:] = saved
        self.steps = state["clock"]
        self.workers.advance(self.steps)
        self.workers.barrier()
        self.pull()
