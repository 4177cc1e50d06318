"""Implements ``RayExecutor`` as in ``horovod.ray``: ranks that are Ray actors."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError
from ray.util.placement_group import get_current_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ringcomm._src.base.errors import CONSEQUENCES
from ringcomm._src.launch.ray_worker import AllgatherActor, Worker
from ringcomm._src.launch.settings import INTERFACE_VARIABLES

_ENDING = 10.0  # seconds that the other ranks have to end after a failure, and all ranks in shutdown()


@dataclass
class Settings:
    """Timeouts and network interfaces of a start, from :meth:`RayExecutor.create_settings`."""

    timeout_s: float = 30  # seconds in which MPI must have started in all workers
    placement_group_timeout_s: float = 100  # seconds in which Ray must provide the resources
    nics: Iterable[str] | None = None  # network interfaces that ranks may use


class RayExecutor:
    """An executor that starts ranks as Ray actors, and calls functions on all ranks.

    The arguments are those of ``horovod.ray.RayExecutor``.

    Parameters
    ----------
    settings : Settings
        Timeouts and network interfaces, from :meth:`create_settings`.
    num_workers : int | None
        Number of ranks. Give either num_workers or num_hosts. In a new placement group, Ray
        packs the ranks on few nodes if it can.
    num_hosts : int | None
        Number of nodes, each with num_workers_per_host ranks. In a current placement group, only
        the total number of ranks counts.
    num_workers_per_host : int
        Number of ranks on each of the num_hosts nodes.
    cpus_per_worker : int
        CPUs that Ray reserves for each rank.
    use_gpu : bool
        If True, Ray reserves GPUs for each rank. CUDA_VISIBLE_DEVICES of each rank lists the GPUs
        of all ranks on its node.
    gpus_per_worker : int | None
        GPUs of each rank, at least 1; None: one. Needs use_gpu=True.
    use_current_placement_group : bool
        If True, the ranks run in the placement group of the calling task or actor, if it has one.
        Otherwise, :meth:`start` makes a new placement group.
    min_workers, max_workers : int | None
        Options of elastic jobs, which RayExecutor does not support. Values raise ValueError.
    reset_limit, cooldown_range, elastic_timeout, override_discovery
        Options of elastic jobs in Horovod; ignored.

    Raises
    ------
    ValueError
        Arguments contradict each other, request an elastic job, or give no rank.

    Examples
    --------
    In a program that has called ``ray.init()``::

        executor = RayExecutor(RayExecutor.create_settings(timeout_s=30), num_workers=2)
        executor.start()
        executor.run(lambda scale: scale * 2, args=[21])  # [42, 42]
        executor.shutdown()
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: str | None = None,
        ssh_str: str | None = None,
        placement_group_timeout_s: float = 100,
        nics: Iterable[str] | None = None,
    ) -> Settings:
        """Makes the settings of an executor.

        Parameters
        ----------
        timeout_s : float
            Seconds in which MPI must have started in all workers.
        ssh_identity_file, ssh_str : str | None
            Accepted without effect, because ssh is not used.
        placement_group_timeout_s : float
            Seconds in which Ray must provide the resources.
        nics : Iterable[str] | None
            Names of the network interfaces that ranks may use.

        Returns
        -------
        Settings
            The settings, for ``RayExecutor(settings)``.
        """
        return Settings(timeout_s, placement_group_timeout_s, nics)

    def __init__(
        self,
        settings: Any,
        num_workers: int | None = None,
        num_hosts: int | None = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: int | None = None,
        use_current_placement_group: bool = True,
        min_workers: int | None = None,
        max_workers: int | None = None,
        reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None,
        elastic_timeout: int = 600,
        override_discovery: bool = True,
    ) -> None:
        if min_workers is not None or max_workers is not None:
            raise ValueError(
                "min_workers and max_workers are for elastic jobs, which do not run on Ray: give num_workers, "
                "or start an elastic job with 'ringrun --min-np ... --max-np ... python script.py' (docs/elastic.md)"
            )
        if gpus_per_worker and not use_gpu:
            raise ValueError("gpus_per_worker needs use_gpu=True")
        if use_gpu and gpus_per_worker is not None and gpus_per_worker < 1:
            raise ValueError(f"gpus_per_worker must be at least 1 with use_gpu=True, not {gpus_per_worker}")
        if (num_workers is None) == (num_hosts is None):
            raise ValueError("give either num_workers, or num_hosts with num_workers_per_host")
        self.settings = settings
        self._hosts, self._per_host = num_hosts, num_workers_per_host
        self._size = num_workers if num_workers is not None else (num_hosts or 0) * num_workers_per_host
        if self._size < 1:
            raise ValueError(f"a job needs at least one worker, not {self._size}")
        self._resources = {"CPU": cpus_per_worker, "GPU": (gpus_per_worker or 1) if use_gpu else 0}
        self._use_current = use_current_placement_group
        self._workers: list[Any] = []
        self._allgather_actor: Any = None
        self._made_group: Any = None
        self._lost = False  # a worker has died

    def start(
        self,
        executable_cls: type | None = None,
        executable_args: Sequence[Any] | None = None,
        executable_kwargs: Mapping[str, Any] | None = None,
        extra_env_vars: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts one worker per rank, a Ray actor, and starts MPI in the workers.

        If this fails, it ends the workers that it started.

        Parameters
        ----------
        executable_cls : type | None
            Each rank makes an instance of this class. :meth:`execute` and :meth:`execute_single`
            pass it to their function.
        executable_args : Sequence[Any] | None
            Positional arguments of ``executable_cls``.
        executable_kwargs : Mapping[str, Any] | None
            Keyword arguments of ``executable_cls``.
        extra_env_vars : Mapping[str, Any] | None
            Variables for the environment of each rank.

        Raises
        ------
        RuntimeError
            The workers are already running.
        TimeoutError
            Ray has not provided the resources within ``placement_group_timeout_s``, or MPI has not
            started within ``timeout_s``.
        ringcomm.RingcommError
            The MPI library is neither MPICH nor derived from it.
        """
        if self._workers:
            raise RuntimeError("the workers have been started: call shutdown() before another start()")
        try:
            self._create_workers()
            self._start_mpi({name: str(value) for name, value in (extra_env_vars or {}).items()})
            if executable_cls is not None:
                arguments = executable_cls, executable_args or [], executable_kwargs or {}
                self._results([worker.start_executable.remote(*arguments) for worker in self._workers])
        except BaseException:
            self.shutdown()
            raise

    def _create_workers(self) -> None:
        group = get_current_placement_group() if self._use_current else None
        ranks_per_bundle = 1 if self._hosts is None else self._per_host
        if group is None:
            resources = {name: amount * ranks_per_bundle for name, amount in self._resources.items() if amount}
            strategy = "PACK" if self._hosts is None else "STRICT_SPREAD"
            self._made_group = group = placement_group(
                [resources] * (self._size // ranks_per_bundle), strategy=strategy
            )
            if not group.wait(limit := getattr(self.settings, "placement_group_timeout_s", 100)):
                raise TimeoutError(
                    f"Ray has not provided {self._size // ranks_per_bundle} times {resources} on "
                    f"{self._hosts or 'any'} nodes within {limit} s (placement_group_timeout_s); "
                    f"available are {ray.available_resources()}"
                )
        for rank in range(self._size):
            options = ray.remote(Worker).options(
                num_cpus=self._resources["CPU"],
                num_gpus=self._resources["GPU"],
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group,
                    rank // ranks_per_bundle if self._made_group else -1,
                    placement_group_capture_child_tasks=False,
                ),
            )
            self._workers.append(options.remote())

    def _start_mpi(self, variables: dict[str, str]) -> None:
        places = self._results([worker.location.remote() for worker in self._workers])
        if nics := getattr(self.settings, "nics", None):
            variables = dict.fromkeys(INTERFACE_VARIABLES, ",".join(nics)) | variables
        kind = ray.remote(AllgatherActor).options(num_cpus=0, max_concurrency=self._size, scheduling_strategy="DEFAULT")
        self._allgather_actor = kind.remote(self._size)
        started = []
        for rank, (node, _) in enumerate(places):
            gpus = [str(gpu) for other_node, ids in places for gpu in ids if other_node == node]
            more = {"CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(gpus))} if gpus else {}
            started.append(
                self._workers[rank].start_mpi.remote(self._allgather_actor, rank, self._size, more | variables)
            )
        self._results(started, getattr(self.settings, "timeout_s", 30))

    def execute(self, fn: Callable[[Any], Any], callbacks: Sequence[Callable[..., Any]] | None = None) -> list[Any]:
        """Calls ``fn(executable)`` on every rank and returns the results by rank.

        Parameters
        ----------
        fn : Callable[[Any], Any]
            The function; its argument is this rank's instance of ``executable_cls``, or None.
        callbacks : Sequence[Callable[..., Any]] | None
            Ignored with a warning: only elastic jobs call them.

        Returns
        -------
        list[Any]
            The results, by rank.

        Raises
        ------
        RayTaskError, RayActorError, RuntimeError
            In the same cases as :meth:`run`.
        """
        return self._results(self._submit(fn, callbacks))

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callable[..., Any]] | None = None,
    ) -> list[Any]:
        """Calls ``fn(*args, **kwargs)`` on every rank and returns the results by rank.

        Parameters
        ----------
        fn : Callable[..., Any]
            The function; it calls :func:`ringcomm.init` itself.
        args : Sequence[Any] | None
            Positional arguments of `fn`.
        kwargs : Mapping[str, Any] | None
            Keyword arguments of `fn`.
        callbacks : Sequence[Callable[..., Any]] | None
            Ignored with a warning: only elastic jobs call them.

        Returns
        -------
        list[Any]
            The results, by rank.

        Raises
        ------
        ray.exceptions.RayTaskError
            A rank raised an exception. The error is also an instance of that exception's type. If
            several ranks raised, errors that report the failure of another rank (PeerLostError,
            RankLeftError, ShutDownError) are raised only if there is no other. ringcomm is shut
            down on each rank that raised; the next function must call ``init`` again there.
        ray.exceptions.RayActorError
            A worker has died. The other workers cannot continue: call :meth:`shutdown`, then
            :meth:`start`.
        RuntimeError
            The workers are not running.
        """
        return self._results(self.run_remote(fn, args, kwargs, callbacks))

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        callbacks: Sequence[Callable[..., Any]] | None = None,
    ) -> list[Any]:
        """Calls a function as :meth:`run` does, but does not wait for the results.

        ``ray.get`` raises the error of a rank without looking for its cause on other ranks.

        Returns
        -------
        list[ray.ObjectRef]
            References to the results, by rank, for ``ray.get``.
        """
        args, kwargs = args or [], kwargs or {}
        return self._submit(lambda _: fn(*args, **kwargs), callbacks)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Calls ``fn(executable)`` on rank 0 only and returns its result."""
        return ray.get(self._started()[0].execute_alone.remote(fn))

    def shutdown(self) -> None:
        """Ends the workers. Kills workers that still run a function after 10 seconds.

        The executor can be started again.
        """
        if ending := [] if self._lost else [worker.end.remote() for worker in self._workers]:
            ray.wait(ending, num_returns=len(ending), timeout=_ENDING)
        for actor in (*self._workers, self._allgather_actor):
            if actor is not None:
                ray.kill(actor)
        if self._made_group is not None:
            remove_placement_group(self._made_group)
        self._workers, self._allgather_actor, self._made_group, self._lost = [], None, None, False

    def _started(self) -> list[Any]:
        if not self._workers:
            raise RuntimeError("there are no workers: call start() first")
        return self._workers

    def _submit(self, fn: Callable[[Any], Any], callbacks: Sequence[Callable[..., Any]] | None) -> list[Any]:
        if callbacks:
            warnings.warn("callbacks are ignored: as in Horovod, only elastic jobs call them", stacklevel=3)
        return [worker.execute.remote(fn) for worker in self._started()]

    def _results(self, references: list[Any], limit: float | None = None) -> list[Any]:
        """Returns the results by rank. Raises the first error that no other rank caused."""
        deadline = None if limit is None else time.monotonic() + limit
        errors: dict[int, Exception] = {}
        waiting = list(references)
        while waiting:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            done, waiting = ray.wait(waiting, timeout=left)
            if not done and errors:
                break
            if not done:
                missing = [references.index(item) for item in waiting]
                raise TimeoutError(f"ranks {missing} of {self._size} have not started within {limit} s (timeout_s)")
            try:
                ray.get(done)
            except (RayTaskError, RayActorError) as error:
                errors[references.index(done[0])] = error
                deadline = min(deadline or math.inf, time.monotonic() + _ENDING)
        if not errors:
            return ray.get(references)
        causes = [
            item for item in errors.items() if type(getattr(item[1], "cause", item[1])).__name__ not in CONSEQUENCES
        ]
        rank, first = (causes or list(errors.items()))[0]
        if isinstance(first, RayActorError):
            self._lost = True
            first.error_msg = f"the worker of rank {rank} of {self._size} has died, so the job cannot continue: {first}"
        raise first
