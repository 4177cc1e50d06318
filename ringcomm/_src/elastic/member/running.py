"""Runs a function so that it outlives the loss of ranks: Horovod's `elastic.run`."""

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

_PATIENCE = 60.0  # seconds that a rank which cannot go on waits to be ended

Function = TypeVar("Function", bound=Callable[..., Any])


def run(func: Function) -> Function:
    """Decorates a function of (state, ...) that trains.

    In a job of ``ringrun --min-np`` (or ``--restarts``) the program runs anew from its top on the ranks that there are
    whenever ranks are lost or come; here the state then becomes that of the last commit, the state's reset callbacks
    are called, and the function begins: it goes on from what the state says. In the job's first ranks, and outside of
    elastic jobs, the state becomes that of rank 0.

    Returns what the function returns, when it has, on the ranks that are there then.

    Raises:
        HorovodInternalError: outside of an elastic job, as everywhere. In one, PeerLostError and its like end in the
            next ranks taking over.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        runtime.session()  # raises before init()
        here = member()
        return _run_in_job(here, func, state, args, kwargs) if here else _run_alone(func, state, args, kwargs)

    return cast(Function, wrapper)


def _run_alone(func: Callable[..., Any], state: State, args: Any, kwargs: Any) -> Any:
    """A number of ranks that cannot change: hosts that came or went are a matter of the program's own messages."""
    while True:
        state.sync()
        try:
            return func(state, *args, **kwargs)
        except HostsUpdatedInterrupt:
            state.on_reset()


def _run_in_job(here: Member, func: Callable[..., Any], state: State, args: Any, kwargs: Any) -> Any:
    here.say(ENTERED)
    leaves = functools.partial(here.say, LEFT)
    atexit.register(leaves)  # before ringcomm's own, which waits for the others
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
    """All ranks are here, at the same step."""
    state.save()
    state.keep()
    here.say(RESET)
    raise SystemExit(0)


def _wait_for_the_end(here: Member) -> None:
    """Another rank is lost. The agent ends this one as soon as the driver knows."""
    here.say(CONSEQUENCE)
    time.sleep(_PATIENCE)
    os._exit(1)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Horovod's form of `run`, in which frameworks say how they start anew. Here that is a new process, so `reset` is
    called by nobody."""
    return run(func)
