"""Simulates hosts on a Linux machine: network namespaces on a bridge, with shaped links.

Every host has its own hostname, network, /dev/shm, IPC objects and process ids, so that MPI and
ringcomm treat its ranks as ranks of another machine. Needs root and iproute2. Everything is removed
when the context ends or this process dies, because only child processes hold the namespaces.

    python benchmarks/cluster.py --hosts 4 --rate 200mbit -- python script.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

NETWORK = "10.77.0"  # /24; exists in the namespaces only
SWITCH_ADDRESS = f"{NETWORK}.254"
BRIDGE = "rcbridge"

# CONGESTION is TCP's congestion control on the shaped links: the first that the kernel has. BBR
# without the queueing discipline `fq` delays data of an open connection by up to 40 ms, which looks
# like a slow schedule. It is set per route, which works even if
# /proc/sys/net/ipv4/tcp_congestion_control is not writable.
CONGESTION = ("cubic", "reno")

# NETMODS selects how MPICH's ranks of different hosts exchange messages: its default (UCX, in the
# wheel), or libfabric over TCP.
NETMODS: dict[str, dict[str, str]] = {
    "default": {},
    "ofi": {"FI_PROVIDER": "tcp", "MPIR_CVAR_CH4_NETMOD": "ofi"},
}

# AGENT replaces ssh: it drops ssh's options, enters the host and passes the rest to a shell there,
# as ssh does. Each host has separate temporary files, because process ids repeat between hosts and
# files of a killed job would be in the way.
AGENT = """#!/bin/bash
while [[ $1 == -* ]]; do
  case $1 in -l|-p|-o|-i|-F) shift 2 ;; *) shift ;; esac
done
host=$1; shift
pid=$(<{directory}/$host.pid) || exit 255
exec nsenter --target "$pid" --net --uts --mount --ipc --pid -- /bin/sh -c "cd {cwd}; export TMPDIR=/dev/shm; $*"
"""


@dataclass
class Namespace:
    """A child process that holds namespaces, which end with it; it ends with this process."""

    flags: str
    setup: str = ":"
    process: subprocess.Popen[bytes] = field(init=False)
    pid: int = field(init=False)

    def __post_init__(self) -> None:
        # `read` ends when the pipe from this process closes; the end of the pid namespace's first
        # process ends all others.
        script = f"set -e; {self.setup}; ip link set lo up; echo ready; read -r _ || true"
        command = [
            "unshare",
            *shlex.split(self.flags),
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
            "-c",
            script,
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise RuntimeError(f"cannot make namespaces ({' '.join(command[:3])} ...): is this root?")
        self.pid = int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def enter(self, command: Sequence[str]) -> list[str]:
        return ["nsenter", "--target", str(self.pid), "--net", "--", *command]

    def close(self) -> None:
        self.process.kill()  # --kill-child also kills the namespace's first process
        self.process.communicate()


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {done.stderr.strip()}")


def mpi_kind(launcher: str) -> str:
    """Returns "mpich", "openmpi" or "intel", by the launcher's version text."""
    said = subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout.lower()
    if "open mpi" in said or "prrte" in said or "openrte" in said:
        return "openmpi"
    if "intel(r) mpi" in said:
        return "intel"
    if "hydra" in said:
        return "mpich"
    raise RuntimeError(f"{launcher} is neither MPICH's nor Open MPI's nor Intel MPI's")


class Cluster:
    """`hosts` hosts from 10.77.0.1 on; `rate` shapes both directions of each host's link.

    rate, burst and latency are written as tc(8) takes them. `shm` is the size of each host's
    /dev/shm. `netmod`: one of NETMODS, which Open MPI ignores. With several racks, which are filled
    one after another, each has a bridge, and a link to BRIDGE that is shaped to `uplink` in both
    directions.
    """

    def __init__(
        self,
        hosts: int,
        rate: str = "200mbit",
        burst: str = "64kb",
        latency: str = "50ms",
        shm: str = "64m",
        netmod: str = "default",
        racks: int = 1,
        uplink: str = "",
        mtu: int = 1500,
    ) -> None:
        if not 1 <= hosts <= 200:
            raise ValueError(f"1 to 200 hosts, not {hosts}")
        if hosts % racks or (racks > 1 and not uplink):
            raise ValueError(f"{racks} racks need an uplink, and {hosts} hosts must fill them evenly")
        self.addresses = [f"{NETWORK}.{i + 1}" for i in range(hosts)]
        self.shape = ["tbf", "rate", rate, "burst", burst, "latency", latency]
        self.uplink = ["tbf", "rate", uplink, "burst", burst, "latency", latency]
        self.bridges = [BRIDGE] if racks == 1 else [f"rcrack{rack + 1}" for rack in range(racks)]
        self.shm, self.netmod, self.mtu = shm, netmod, str(mtu)
        self._holders: list[int] = []  # the first process of each host
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as stack:  # if a step below fails, removes everything created by then
            directory = Path(tempfile.mkdtemp(prefix="ringcomm-cluster-"))
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            self.agent = directory / "agent"
            self.agent.write_text(AGENT.format(directory=directory, cwd=shlex.quote(os.getcwd())))
            self.agent.chmod(0o755)
            self.switch = self._hold(stack, Namespace("--net --mount"))
            self._in_switch("ip", "link", "add", BRIDGE, "type", "bridge")
            self._in_switch("ip", "address", "add", f"{SWITCH_ADDRESS}/24", "dev", BRIDGE)
            self._in_switch("ip", "link", "set", BRIDGE, "up")
            for bridge in self.bridges:
                if bridge != BRIDGE:
                    self._connect_rack(bridge)
            for index, address in enumerate(self.addresses):
                setup = f"hostname host{index + 1}; mount -t tmpfs -o size={self.shm} tmpfs /dev/shm"
                host = self._hold(stack, Namespace("--net --uts --mount --ipc", setup))
                (directory / f"{address}.pid").write_text(str(host.pid))
                self._holders.append(host.pid)
                bridge = self.bridges[index * len(self.bridges) // len(self.addresses)]
                self._connect(host, f"port{index + 1}", address, bridge)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @staticmethod
    def _hold(stack: contextlib.ExitStack, namespace: Namespace) -> Namespace:
        stack.callback(namespace.close)
        return namespace

    def _in_switch(self, *command: str) -> None:
        _run(self.switch.enter(command))

    def _connect_rack(self, bridge: str) -> None:
        self._in_switch("ip", "link", "add", bridge, "type", "bridge")
        self._in_switch("ip", "link", "set", bridge, "up")
        self._in_switch("ip", "link", "add", f"{bridge}-up", "type", "veth", "peer", "name", f"{bridge}-down")
        for end, master in ((f"{bridge}-up", bridge), (f"{bridge}-down", BRIDGE)):
            self._in_switch("ip", "link", "set", end, "master", master, "up")
            self._in_switch("tc", "qdisc", "add", "dev", end, "root", *self.uplink)

    def _connect(self, host: Namespace, port: str, address: str, bridge: str) -> None:
        self._in_switch("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(host.pid))
        self._in_switch("ip", "link", "set", port, "mtu", self.mtu, "master", bridge, "up")
        self._in_switch("tc", "qdisc", "add", "dev", port, "root", *self.shape)
        for command in (
            ["ip", "address", "add", f"{address}/24", "dev", "eth0"],
            ["ip", "link", "set", "eth0", "mtu", self.mtu, "up"],
            ["tc", "qdisc", "add", "dev", "eth0", "root", *self.shape],
        ):
            _run(host.enter(command))
        route = f"ip route change {NETWORK}.0/24 dev eth0 proto kernel scope link src {address} congctl"
        _run(host.enter(["sh", "-c", " || ".join(f"{route} {name}" for name in CONGESTION)]))

    def set_link(self, host: int, up: bool) -> None:
        """Disconnects a host, numbered from 1, or connects it again."""
        self._in_switch("ip", "link", "set", f"port{host}", "up" if up else "down")

    def processes(self, host: int) -> list[int]:
        """Returns the processes that run on a host, numbered from 1."""
        holder = self._holders[host - 1]
        mine, found = os.readlink(f"/proc/{holder}/ns/pid"), []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and int(name) != holder and os.readlink(f"/proc/{name}/ns/pid") == mine:
                    found.append(int(name))
        return found

    def crash(self, host: int) -> None:
        """Kills all processes of a host without a message."""
        for pid in self.processes(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def command(
        self, launcher: str, program: Sequence[str], ranks_per_host: int = 1
    ) -> tuple[list[str], dict[str, str]]:
        """Returns the command that starts `program` on hosts, filled in order, and environment."""
        environment = dict(os.environ)
        ranks = len(self.addresses) * ranks_per_host
        slots = ",".join(f"{a}:{ranks_per_host}" for a in self.addresses)
        if mpi_kind(launcher) == "mpich":
            environment |= NETMODS[self.netmod]
            line = [
                launcher,
                "-launcher",
                "ssh",
                "-launcher-exec",
                str(self.agent),
                "-iface",
                BRIDGE,
                "-hosts",
                slots,
                "-n",
                str(ranks),
            ]
        else:
            net = f"{NETWORK}.0/24"
            environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
            line = [
                launcher,
                "--prtemca",
                "plm_ssh_agent",
                str(self.agent),
                "--prtemca",
                "prte_if_include",
                net,
                "--host",
                slots,
                "--map-by",
                "slot:OVERSUBSCRIBE",
                "--bind-to",
                "none",
                "--mca",
                "pml",
                "ob1",
                "--mca",
                "btl",
                "self,sm,tcp",
                "--mca",
                "btl_tcp_if_include",
                net,
                "--mca",
                "mpi_yield_when_idle",
                "1",
                "-n",
                str(ranks),
            ]
        return self.switch.enter([*line, *program]), environment

    def run(
        self,
        launcher: str,
        program: Sequence[str],
        ranks_per_host: int = 1,
        timeout: float | None = None,
        capture: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Runs `program` (an argument list) under `launcher` (a path of mpiexec or mpirun).

        Raises subprocess.TimeoutExpired; processes that still run then end with the cluster.
        """
        line, environment = self.command(launcher, program, ranks_per_host)
        return subprocess.run(
            line, env=environment, timeout=timeout, text=True, stdin=subprocess.DEVNULL, capture_output=capture
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--rate", default="200mbit", help="of each link, both ways (tc units)")
    parser.add_argument("--racks", type=int, default=1, help="of equally many hosts each")
    parser.add_argument("--uplink", default="", help="rate of each rack's uplink, both ways (tc units)")
    parser.add_argument("--mtu", type=int, default=1500, help="bytes of a packet; 9000 costs less processor time")
    parser.add_argument("--burst", default="64kb")
    parser.add_argument("--latency", default="50ms", help="longest wait in the link's queue")
    parser.add_argument("--shm", default="64m", help="size of each host's /dev/shm")
    parser.add_argument(
        "--launcher", default=str(Path(sys.executable).with_name("mpiexec")), help="mpiexec of the MPI to use"
    )
    parser.add_argument("--netmod", choices=NETMODS, default="default", help="of MPICH, between hosts")
    parser.add_argument("--timeout", type=float, default=None, help="seconds")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="-- command and its arguments")
    options = parser.parse_args(arguments)
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        parser.error("give a command after --")
    with Cluster(
        options.hosts,
        options.rate,
        options.burst,
        options.latency,
        options.shm,
        options.netmod,
        options.racks,
        options.uplink,
        options.mtu,
    ) as cluster:
        return cluster.run(options.launcher, program, options.ranks_per_host, options.timeout).returncode


if __name__ == "__main__":
    sys.exit(main())
