"""Runs a training function that survives the loss of ranks: Horovod's `elastic.run`.

`run` restores the last commit at the beginning of each generation, and reports the end of the
function to the agent.
"""

from __future__ import annotations

import atexit
import functools
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ringcomm._src.base.errors import PeerLostError, RankLeftError, ShutDownError
from ringcomm._src.base.horovod_exceptions import HostsUpdatedInterrupt
from ringcomm._src.elastic.agent.protocol import CONSEQUENCE, ENTERED, FINISHED, LEFT, RESET
from ringcomm._src.elastic.member.member import Member, member
from ringcomm._src.elastic.member.state import State
from ringcomm._src.named import runtime

_PATIENCE = 60.0  # seconds that a rank waits to be ended when it cannot continue

Function = TypeVar("Function", bound=Callable[..., Any])


def run(func: Function) -> Function:
    """Decorates a training function, so that it survives the loss of ranks.

    In a job of ``ringrun --min-np`` (or ``--restarts``), each change of ranks begins a new
    generation: the script is started again on the changed ranks. The decorated function then
    restores the state of the last commit, and calls the state's reset callbacks. Then it calls
    ``func``, which continues from that state. In the first generation, and outside of elastic jobs,
    all ranks start with the state of rank 0.

    Parameters
    ----------
    func : Callable[..., Any]
        A function of (state, ...) that trains; ``state`` is a `State`.

    Returns
    -------
    Callable[..., Any]
        The decorated function. It returns the function's result, on the ranks of the last
        generation.

    Raises
    ------
    HorovodInternalError
        A collective of ``func`` failed. In an elastic job, PeerLostError, RankLeftError and
        ShutDownError are not raised. Training then continues in the next generation.

    Examples
    --------
    >>> import ringcomm.elastic
    >>> ringcomm.init()
    >>> @ringcomm.elastic.run
    ... def train(state):
    ...     while state.batch < 3:
    ...         state.batch += 1  # a training step
    ...         state.commit()
    ...     return state.batch
    >>> train(ringcomm.elastic.ObjectState(batch=0))
    3
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        runtime.session()  # raises before init()
        job_member = member()
        return (
            _run_in_job(job_member, func, state, args, kwargs) if job_member else _run_alone(func, state, args, kwargs)
        )

    return cast(Function, wrapper)


def _run_alone(func: Callable[..., Any], state: State, args: Any, kwargs: Any) -> Any:
    """Runs with a fixed number of ranks. The program itself reports changes of hosts."""
    while True:
        state.sync()
        try:
            return func(state, *args, **kwargs)
        except HostsUpdatedInterrupt:
            state.on_reset()


def _run_in_job(job_member: Member, func: Callable[..., Any], state: State, args: Any, kwargs: Any) -> Any:
    job_member.report(ENTERED)
    report_left = functools.partial(job_member.report, LEFT)
    atexit.register(report_left)  # runs before ringcomm's exit handler, which waits for the other ranks
    try:
        if state.resume():
            state.on_reset()
        else:
            state.sync()
            state.commit()
        result = func(state, *args, **kwargs)
        job_member.report(FINISHED)
        atexit.unregister(report_left)
        return result
    except HostsUpdatedInterrupt:
        atexit.unregister(report_left)
        _leave(job_member, state)
    except (PeerLostError, RankLeftError, ShutDownError):
        _wait_for_end(job_member)


def _leave(job_member: Member, state: State) -> None:
    """Commits and ends this rank. All ranks call it at the same step."""
    state.save()
    state.keep()
    job_member.report(RESET)
    raise SystemExit(0)


def _wait_for_end(job_member: Member) -> None:
    """Waits until the agent ends this rank, because another rank is lost."""
    job_member.report(CONSEQUENCE)
    time.sleep(_PATIENCE)
    os._exit(1)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Decorates a training function as `run` does, in Horovod's form.

    Parameters
    ----------
    func : Callable[..., Any]
        As in `run`.
    reset : Callable[[], None]
        In Horovod, resets a framework. Here a reset is a new process, so it is never called.

    Returns
    -------
    Callable[..., Any]
        As in `run`.

    Examples
    --------
    >>> ringcomm.init()
    >>> import ringcomm.elastic
    >>> train = ringcomm.elastic.run_fn(lambda state: state.batch, reset=lambda: None)
    >>> train(ringcomm.elastic.ObjectState(batch=7))
    7
    """
    return run(func)
