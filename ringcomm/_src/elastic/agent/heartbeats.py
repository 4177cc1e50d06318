"""Heartbeats between an agent and the driver.

Heartbeats are sent on the connection and as datagrams. After a short link failure, the next
datagram arrives, while TCP may wait for seconds before it retransmits.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
from typing import Any

_DIGEST = 32  # bytes


class Heartbeats:
    """Authenticated heartbeats between processes that know a key."""

    def __init__(self, key: bytes, port: int = 0) -> None:
        """Binds the socket. Raises OSError."""
        self._key = key
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", port))
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, sender: str, address: Any) -> None:
        """Sends a heartbeat. The first argument is the sender's name."""
        data = sender.encode()
        with contextlib.suppress(OSError):
            self._socket.sendto(hmac.digest(self._key, data, hashlib.sha256) + data, address)

    def receive(self) -> tuple[str, Any] | None:
        """Returns the sender's name and address; None if there is no authentic heartbeat."""
        try:
            data, address = self._socket.recvfrom(1 << 10)
        except OSError:
            return None
        digest, data = data[:_DIGEST], data[_DIGEST:]
        return (data.decode(), address) if hmac.compare_digest(digest, hmac.digest(self._key, data, "sha256")) else None

    def close(self) -> None:
        self._socket.close()
