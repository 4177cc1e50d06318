"""Runs a training function that survives the loss of ranks: Horovod's `elastic.run`.

It restores the last commit at the beginning of each generation, and reports the end of the function
to the agent.
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
    """Decorates a function of (state, ...) that trains.

    In a job of ``ringrun --min-np`` (or ``--restarts``), a change of ranks restarts the program on
    the ranks of the next generation. This function then restores the state of the last commit,
    calls the state's reset callbacks, and calls ``func``, which continues from the state. In the
    first generation, and outside of elastic jobs, all ranks start with the state of rank 0.

    Returns the function's result, on the ranks of the last generation.

    Raises:
        HorovodInternalError: outside of an elastic job, as in other calls. In an elastic job,
            PeerLostError and similar errors end the generation, and the next one takes over.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        runtime.session()  # raises before init()
        here = member()
        return _run_in_job(here, func, state, args, kwargs) if here else _run_alone(func, state, args, kwargs)

    return cast(Function, wrapper)


def _run_alone(func: Callable[..., Any], state: State, args: Any, kwargs: Any) -> Any:
    """Runs with a fixed number of ranks. The program itself reports changes of hosts."""
    while True:
        state.sync()
        try:
            return func(state, *args, **kwargs)
        except HostsUpdatedInterrupt:
            state.on_reset()


def _run_in_job(here: Member, func: Callable[..., Any], state: State, args: Any, kwargs: Any) -> Any:
    here.say(ENTERED)
    leaves = functools.partial(here.say, LEFT)
    atexit.register(leaves)  # runs before ringcomm's exit handler, which waits for the other ranks
    try:
        if state.resume():
            state.on_reset()
        else:
            state.sync()
            state.commit()
        result = func(state, *args, **kwargs)
        here.say(FINISHED)
        atexit.unregister(leaves)
        return result
    except HostsUpdatedInterrupt:
        atexit.unregister(leaves)
        _leave(here, state)
    except (PeerLostError, RankLeftError, ShutDownError):
        _wait_for_the_end(here)


def _leave(here: Member, state: State) -> None:
    """Commits and ends this rank. All ranks call it at the same step."""
    state.save()
    state.keep()
    here.say(RESET)
    raise SystemExit(0)


def _wait_for_the_end(here: Member) -> None:
    """Waits until the agent ends this rank, because another rank is lost."""
    here.say(CONSEQUENCE)
    time.sleep(_PATIENCE)
    os._exit(1)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Provides Horovod's form of `run`, in which a framework passes a function that resets it.

    Here a reset is a new process, so `reset` is never called.
    """
    return run(func)
