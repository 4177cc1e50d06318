"""Replaces ssh for an MPI launcher: the agent of the other host starts the launcher's helper.

Usage, as for ssh: ``shim.py [options] HOST COMMAND ...``. The shim ends when the helper ends, with
the helper's exit status.
"""

from __future__ import annotations

import os
import sys

from ringcomm._src.elastic.agent.peers import Peer

ADDRESS = "RINGCOMM_ELASTIC_DRIVER"
_WITH_VALUE = "bcDEeFIiJLlmOopQRSWw"  # ssh's options that take a value


def main() -> int:
    words = sys.argv[1:]
    while words and words[0].startswith("-"):
        words = words[2 if len(words[0]) == 2 and words[0][1] in _WITH_VALUE else 1 :]
    host, *command = words
    peer = Peer.connect(os.environ[ADDRESS])
    # ssh joins its words with blanks and passes them to a shell.
    peer.send({"host": host, "command": " ".join(command) if len(command) > 1 else command[0], "cwd": os.getcwd()})
    try:
        message, _ = peer.receive()
    except EOFError:
        return 255
    return int(message["status"]) & 255
