"""Hosts of a job: network namespaces with one rank each, to cut links and kill processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import processes
from cluster import BRIDGE, NETWORK, Cluster, Namespace, mpi_kind

_DOWN, _FLAP, _PARTED = 5.0, 0.8, 3.0  # seconds; the driver abandons a host after 2.5


class Lab(Cluster):
    """A cluster in which the driver runs in the switch, which is not one of the hosts."""

    def __init__(self, hosts: int) -> None:
        super().__init__(hosts)
        self.spaces: list[Namespace] = []
        self._kind = mpi_kind(str(Path(sys.executable).with_name("mpiexec")))

    def _connect(self, host: Namespace, port: str, address: str) -> None:
        super()._connect(host, port, address)
        self.spaces.append(host)

    def options(self) -> list[str]:
        """Returns the options of ringrun."""
        words = ["-H", ",".join(f"{address}:1" for address in self.addresses), "--ssh-command", str(self.agent)]
        if self._kind == "mpich":
            return [*words, f"--mpi-args=-iface {BRIDGE}"]
        return [*words, "--network-interfaces", f"{NETWORK}.0/24", "--tcp"]

    def enter(self, command: list[str]) -> list[str]:
        return self.switch.enter(command)

    def memories(self) -> list[Path]:
        return [Path(f"/proc/{space.pid}/root/dev/shm") for space in self.spaces]

    def hit(self, kind: str, draw: int, mark: str) -> bool:
        """Carries out a fault on a host. Returns when it is over."""
        victim = draw % len(self.spaces)
        ports = [f"port{victim + 1}"]
        if kind == "crash":
            return self._crash(self.spaces[victim], mark)
        if kind == "partition":  # from another host, but not from the driver
            ports.append(f"port{(victim + 1) % len(self.spaces) + 1}")
            self._for(_PARTED, ports, ("bridge", "link", "set", "dev"), ("isolated", "on"), ("isolated", "off"))
        else:
            self._for(_DOWN if kind == "link" else _FLAP, ports, ("ip", "link", "set"), ("down",), ("up",))
        return True

    def _for(
        self, seconds: float, ports: list[str], words: tuple[str, ...], on: tuple[str, ...], off: tuple[str, ...]
    ) -> None:
        for end in (on, off):
            for port in ports:
                subprocess.run(self.switch.enter([*words, port, *end]), check=False, capture_output=True)
            time.sleep(seconds if end is on else 0)

    @staticmethod
    def _crash(space: Namespace, mark: str) -> bool:
        """Kills all processes of the job on this host, and removes its shared memory."""
        there = os.readlink(f"/proc/{space.pid}/ns/pid")
        for _ in range(3):  # a killed process may just have started another one
            for process in processes.of_job(mark):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{process.pid}/ns/pid") == there:
                        processes.kill(process.pid)
        for path in Path(f"/proc/{space.pid}/root/dev/shm").iterdir():  # a host that crashes loses its memory
            with contextlib.suppress(OSError):
                path.unlink()
        return True
