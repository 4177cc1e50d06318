"""Runs a rank of `ringcomm.run`: calls the function and sends back its result or exception."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection

from ringcomm._src.elastic.agent.protocol import GENERATION
from ringcomm._src.launch.function import ADDRESS, KEY, dumps
from ringcomm._src.launch.rank import RANK_VARIABLES, first_number


def connect(variables: Mapping[str, str] = os.environ) -> Connection:
    """Connects to the process that called ringcomm.run."""
    where, key = variables[ADDRESS], bytes.fromhex(variables[KEY])
    if where.startswith("/"):
        return Client(where, authkey=key)
    host, _, port = where.rpartition(":")
    return Client((host, int(port)), authkey=key)


def main() -> None:
    rank = first_number(RANK_VARIABLES)
    try:
        with connect() as connection:
            connection.send(("function", rank))
            path, call = pickle.loads(connection.recv_bytes())
        sys.path += [folder for folder in path if folder not in sys.path]
        func, args, kwargs = pickle.loads(call)
        result = dumps(func(*args, **kwargs))
    except BaseException as error:
        # sys.exit() with status 0 is no error, but gives no result. The process that called
        # ringcomm.run then names the ranks without results.
        if not (isinstance(error, SystemExit) and not error.code):
            report(rank, error)
        raise
    with connect() as connection:
        connection.send(("result", rank, int(os.environ.get(GENERATION, "0"))))
        connection.send_bytes(result)


def report(rank: int, error: BaseException, variables: Mapping[str, str] = os.environ) -> None:
    """Sends an exception to the process that called ringcomm.run."""
    try:
        pickled = dumps(error)
        pickle.loads(pickled)  # some exceptions can be pickled but not unpickled
    except Exception:
        pickled = None
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(Exception), connect(variables) as connection:
        connection.send(("error", rank, pickled, type(error).__name__, text))


if __name__ == "__main__":
    main()
