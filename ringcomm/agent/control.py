"""Messages between an agent and the driver of the job."""

from __future__ import annotations

import contextlib
import json
import socket
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from ringcomm.agent.peers import Message

# Of linux/tcp.h: what was lost while a link was down is sent again soon after it is back, and not ever more seldom.
_THIN_LINEAR_TIMEOUTS = 16


class Control:
    """JSON over TCP between an agent and the driver, who know a key."""

    def __init__(self, connection: socket.socket, key: bytes, driver: bool) -> None:
        """Raises OSError, EOFError or AuthenticationError if the other end is none of ours. Waits for it."""
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, _THIN_LINEAR_TIMEOUTS, 1)
        self._connection = Connection(connection.detach())
        first, second = (deliver_challenge, answer_challenge) if driver else (answer_challenge, deliver_challenge)
        first(self._connection, key)  # type: ignore[operator]
        second(self._connection, key)  # type: ignore[operator]

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: Message) -> None:
        """Raises OSError."""
        self._connection.send_bytes(json.dumps(message).encode())

    def receive(self) -> Message:
        """Raises EOFError when the other end is gone."""
        try:
            return dict(json.loads(self._connection.recv_bytes()))
        except OSError:
            raise EOFError from None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()
