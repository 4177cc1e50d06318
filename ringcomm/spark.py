"""``run`` as in ``horovod.spark``: calls a function on ranks that the tasks of a Spark job start.

::

    import ringcomm.spark

    results = ringcomm.spark.run(train, args=(0.1,), num_proc=4)  # one result per rank, in order

The job is one barrier stage. Each task starts one rank as a child process, because Spark uses a
Python worker for several tasks, and a process cannot start MPI twice. The task is the rank's
process manager (:mod:`ringcomm._src.platform.pmi`), so MPI must be MPICH.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from ringcomm._src.base.installed import missing_message
from ringcomm._src.elastic.agent.processes import die_with_parent
from ringcomm._src.launch.call import report
from ringcomm._src.launch.function import ADDRESS, Exchange, dumps
from ringcomm._src.launch.settings import INTERFACE_VARIABLES
from ringcomm._src.platform import pmi

if _missing := missing_message("pyspark", "ringcomm.spark"):
    raise ImportError(_missing)

import pyspark
from pyspark import BarrierTaskContext, InheritableThread

__all__ = ["run"]

_ENDING = 15.0  # seconds in which the other ranks must end after a failure
_START_TIMEOUT = "HOROVOD_SPARK_START_TIMEOUT"

logger = logging.getLogger("ringcomm")


@dataclass
class _Task:
    """Starts one rank in a Spark task and waits for its end. Errors end the Spark job."""

    size: int
    variables: Mapping[str, str]
    executable: str | None
    captured: bool  # return the rank's output instead of leaving it in the executor's log

    def __call__(self, _: Iterable[Any]) -> Iterator[tuple[bytes, bytes]]:
        context = BarrierTaskContext.get()
        rank = context.partitionId()
        try:
            pmi.check_library(self.size, "Spark")
            status, *output = self._run(context, rank)
            if status < 0:
                raise RuntimeError(f"rank {rank} of {self.size} has died: {signal.Signals(-status).name}")
        except Exception as error:
            report(rank, error, self.variables)
            raise
        if status:  # the rank has reported its error
            raise RuntimeError(f"rank {rank} of {self.size} ended with status {status}")
        yield output[0] or b"", output[1] or b""

    def _run(self, context: BarrierTaskContext, rank: int) -> tuple[int, bytes | None, bytes | None]:
        space = pmi.GatheredSpace(lambda new: [json.loads(text) for text in context.allGather(json.dumps(new))])
        manager = pmi.Manager(space, rank, self.size)
        path = {"PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder)}
        pipe = subprocess.PIPE if self.captured else None
        try:
            child = subprocess.Popen(
                [self.executable or sys.executable, "-m", "ringcomm._src.launch.call"],
                env={**os.environ, **path, **self.variables, **manager.variables},
                pass_fds=[manager.descriptor],
                preexec_fn=die_with_parent,
                stdout=pipe,
                stderr=pipe,
            )
        finally:
            os.close(manager.descriptor)
        out, err = child.communicate()
        return child.returncode, out, err


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] = {},
    num_proc: int | None = None,
    start_timeout: float | None = None,
    use_mpi: bool | None = None,
    use_gloo: bool | None = None,
    extra_mpi_args: str | None = None,
    env: Mapping[str, str] | None = None,
    stdout: IO[str] | None = None,
    stderr: IO[str] | None = None,
    verbose: int = 1,
    nics: Iterable[str] | None = None,
    prefix_output_with_timestamp: bool = False,
    executable: str | None = None,
) -> list[Any]:
    """Calls ``fn(*args, **kwargs)`` on every rank of a new job and returns the results.

    `fn` calls :func:`ringcomm.init` itself. MPI must be MPICH or derived from it. `fn`, its
    arguments and its results are pickled (with cloudpickle if it is installed).
    The arguments are those of ``horovod.spark.run``.

    Parameters
    ----------
    fn : Callable[..., Any]
        The function that every rank calls.
    args : Sequence[Any]
        Positional arguments of `fn`.
    kwargs : Mapping[str, Any]
        Keyword arguments of `fn`.
    num_proc : int | None
        Number of ranks; by default ``spark.default.parallelism``. Spark must be able to run this
        number of tasks at the same time.
    start_timeout : float | None
        Seconds in which all ranks must have started; by default HOROVOD_SPARK_START_TIMEOUT, or
        600.
    env : Mapping[str, str] | None
        Environment variables of the ranks, added to those of Spark's executors.
    stdout, stderr : IO[str] | None
        Text files to which the ranks' output is written after the job has succeeded. If only one
        is given, the other output is discarded. If neither is given, all output stays in the logs
        of Spark's executors.
    verbose : int
        0: ringcomm does not log the start of the job. Other values: it does, at level INFO.
    nics : Iterable[str] | None
        Names of the network interfaces that ranks may use.
    executable : str | None
        Python interpreter of the ranks; by default the one that runs Spark's tasks.
    use_mpi, use_gloo, extra_mpi_args, prefix_output_with_timestamp
        Accepted without effect.

    Returns
    -------
    list[Any]
        One result per rank, in rank order.

    Raises
    ------
    Exception
        The exception that a rank raised, with the rank's traceback as ``__cause__``. If several
        ranks raised, errors that report the failure of another rank (PeerLostError, RankLeftError,
        ShutDownError) are raised only if there is no other.
    RuntimeError
        There is no SparkContext, or the job failed otherwise.
    TimeoutError
        The ranks have not started in time.
    ValueError
        The function cannot be pickled, or num_proc is less than 1.

    Examples
    --------
    In a program with an active SparkSession::

        ringcomm.spark.run(lambda scale: scale * 2, args=(21,), num_proc=2)  # [42, 42]
    """
    context = pyspark.SparkContext._active_spark_context
    if context is None:
        raise RuntimeError("there is no active SparkContext: create a SparkSession before ringcomm.spark.run")
    size = context.defaultParallelism if num_proc is None else num_proc
    limit = float(os.environ.get(_START_TIMEOUT, 600)) if start_timeout is None else start_timeout
    if size < 1:
        raise ValueError(f"a job needs at least one rank, not {size}")
    if verbose:
        logger.info("starting %d ranks in tasks of Spark", size)
    payload = pickle.dumps((sys.path, dumps((fn, tuple(args), dict(kwargs)))))
    group = f"ringcomm.spark.run {id(payload)}"
    outputs: list[tuple[bytes, bytes]] = []
    failures: list[Exception] = []

    def run_stage() -> None:
        try:
            context.setJobGroup(group, "ringcomm.spark.run", interruptOnCancel=True)
            outputs.extend(context.parallelize(range(size), size).barrier().mapPartitions(task).collect())
        except Exception as error:
            failures.append(error)

    with Exchange(payload, remote=not context.master.startswith("local")) as exchange:
        variables = exchange.variables
        if not variables[ADDRESS].startswith("/"):  # TCP: executors use spark.driver.host
            variables[ADDRESS] = f"{context.getConf().get('spark.driver.host')}:{variables[ADDRESS].rpartition(':')[2]}"
        interfaces = dict.fromkeys(INTERFACE_VARIABLES, ",".join(nics)) if nics else {}
        task = _Task(size, {**interfaces, **(env or {}), **variables}, executable, bool(stdout or stderr))
        job = InheritableThread(target=run_stage, daemon=True)
        job.start()
        try:
            missing = _wait(job, exchange, size, limit)
        finally:  # also after Ctrl-C
            if job.is_alive():
                context.cancelJobGroup(group)
                job.join(_ENDING)
    if missing:
        raise TimeoutError(
            f"ranks {missing} of {size} have not started within {limit:g} s: check that Spark can run {size} tasks at "
            "the same time, or increase start_timeout"
        )
    for index, stream in enumerate((stdout, stderr)):
        if stream:
            stream.write("".join(output[index].decode(errors="replace") for output in outputs))
    if failures and not exchange.failed:
        raise RuntimeError(f"the Spark job has failed: {failures[0]}") from failures[0]
    return exchange.results(size, int(not outputs))


def _wait(job: InheritableThread, exchange: Exchange, size: int, limit: float) -> list[int]:
    """Waits until the job ends; after a rank's error, waits at most `_ENDING` seconds.

    Returns the ranks that have not started within `limit` seconds.
    """
    began = time.monotonic()
    failed = 0.0
    while job.is_alive() and not (failed and time.monotonic() > failed + _ENDING):
        job.join(0.1)
        if exchange.failed:
            failed = failed or time.monotonic()
        elif len(exchange.started) < size and time.monotonic() > began + limit:
            return sorted({*range(size)} - exchange.started)
    return []
