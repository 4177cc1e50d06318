"""The connection between an agent and the driver of the job."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from ringcomm._src.elastic.agent.peers import Message


class Control:
    """JSON messages over TCP between two processes that know a key."""

    def __init__(self, connection: socket.socket, key: bytes, driver: bool) -> None:
        """Authenticates both ends, and blocks until this is done.

        Raises OSError, EOFError or AuthenticationError if the other end does not belong to the job.
        """
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)
        self._socket = connection
        self._connection = Connection(os.dup(connection.fileno()))
        first, second = (deliver_challenge, answer_challenge) if driver else (answer_challenge, deliver_challenge)
        first(self._connection, key)
        second(self._connection, key)

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def other_end(self) -> tuple[str, int]:
        """The address of the other end."""
        address = self._socket.getpeername()
        return address[0], address[1]

    def send(self, message: Message) -> None:
        """Sends a message. Raises OSError."""
        self._connection.send_bytes(json.dumps(message).encode())

    def receive(self) -> Message:
        """Receives a message. Raises EOFError when the other end is closed, or after `hang_up`."""
        try:
            return dict(json.loads(self._connection.recv_bytes()))
        except OSError:
            raise EOFError from None

    def hang_up(self) -> None:
        """Interrupts the thread that waits in `receive`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()
        self._socket.close()
