"""Messages between the processes of one host, with file descriptors.

Agents, stubs, trainers, zygotes and shims communicate through `Peer`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

Message = dict[str, Any]

_LENGTH = struct.Struct("=I")
_MAX_FDS = 8


class Peer:
    """One end of a Unix socket, for JSON messages with file descriptors."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    @classmethod
    def connect(cls, name: str) -> Peer:
        """Connects to an abstract address. Raises OSError."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect("\0" + name)
        return cls(connection)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Sends a message. Raises OSError."""
        data = json.dumps(message).encode()
        socket.send_fds(self._socket, [_LENGTH.pack(len(data))], fds)
        self._socket.sendall(data)

    def try_send(self, message: Message) -> None:
        """Sends a message, and ignores that the other end may be closed."""
        with contextlib.suppress(OSError):
            self.send(message)

    def receive(self) -> tuple[Message, list[int]]:
        """Receives a message. Raises EOFError when the other end is closed."""
        try:
            head, fds, _, _ = socket.recv_fds(self._socket, _LENGTH.size, _MAX_FDS, socket.MSG_WAITALL)
            if len(head) < _LENGTH.size:
                raise EOFError
            (left,), chunks = _LENGTH.unpack(head), []
            while left:
                chunks.append(self._socket.recv(left))
                if not chunks[-1]:
                    raise EOFError
                left -= len(chunks[-1])
        except OSError:
            raise EOFError from None
        return json.loads(b"".join(chunks)), fds

    def _credentials(self) -> tuple[int, int]:
        pid, uid, _ = struct.unpack("3i", self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid, uid

    def of_this_user(self) -> bool:
        return self._credentials()[1] == os.geteuid()

    @property
    def group(self) -> int:
        """The process group of the other end; 0 if its process has ended."""
        with contextlib.suppress(ProcessLookupError):
            return os.getpgid(self._credentials()[0])
        return 0

    def close(self) -> None:
        self._socket.close()


def listen(name: str) -> socket.socket:
    """Listens at an abstract address, which leaves no file behind."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + name)
    listener.listen(128)
    return listener
