"""The driver of elastic jobs, which `ringrun --min-np` runs in its process.

`run` is the entry point. The command line or `Discovery` names the hosts; `Membership` decides
which slots are used. `Driver` runs one `Generation` after the other, each a `Job` under a launcher.
`Agents` controls the agent of each host (ringcomm._src.elastic.agent).
"""

from __future__ import annotations

import argparse
import functools
import os
import queue
import secrets
import shlex
import stat
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringcomm._src.elastic.agent.host import HEARTBEATS
from ringcomm._src.elastic.agent.processes import in_own_session
from ringcomm._src.elastic.agent.protocol import ADDRESS
from ringcomm._src.elastic.agent.shim import ADDRESS as SHIM_ADDRESS
from ringcomm._src.elastic.agent.start import bare_command
from ringcomm._src.elastic.driver.agents import Agents
from ringcomm._src.elastic.driver.discovery import Discovery
from ringcomm._src.elastic.driver.driver import Driver
from ringcomm._src.elastic.driver.limits import Limits
from ringcomm._src.elastic.driver.membership import Membership
from ringcomm._src.launch.hosts import Host, is_local
from ringcomm._src.launch.job import CommandLine, Job
from ringcomm._src.launch.launcher_process import LauncherProcess
from ringcomm._src.launch.start import wrapper_command

LOCALHOST = "localhost"


def is_elastic(options: argparse.Namespace) -> bool:
    return any(option is not None for option in (options.min_np, options.max_np, options.restarts, options.snapshots))


def run(
    options: argparse.Namespace, job: Job, hosts: list[Host], line_of: Callable[[Job], CommandLine], use_srun: bool
) -> int:
    """Runs an elastic job, and returns its exit status.

    Raises ValueError for numbers that contradict each other, and OSError.
    """
    events: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    discovery = None
    if options.host_discovery_script:
        discovery = Discovery(options.host_discovery_script, options.slots_per_host, events)
        hosts = discovery.first()
    hosts = hosts or [Host(LOCALHOST, options.num_proc or options.max_np or options.min_np)]
    membership, limits = make_limits(options, hosts)
    membership.found(hosts)
    local = functools.cache(is_local)
    only_local = discovery is None and all(local(host.name) for host in hosts)
    name = f"ringcomm-{os.getpid()}-{secrets.token_hex(4)}"
    arguments = {
        "job": name,
        "limit": options.heartbeat_seconds,
        "patience": limits.timeout,
        "zygote": not options.cold_start,
        "snapshot": limits.snapshots,
        "verbose": options.verbose,
    }

    local_name = next(filter(local, (host.name for host in hosts)), LOCALHOST)

    def alias(host: str) -> str:
        """Maps all names of this machine to one name, so that it is one host for MPI and agents."""
        return local_name if local(host) else host

    def launch(generation_job: Job) -> LauncherProcess:
        return LauncherProcess(
            line_of(generation_job),
            generation_job.size,
            options.verbose,
            in_own_session,
            only_ranks=True,
            tags=options.tag_output,
        )

    with tempfile.TemporaryDirectory(prefix="ringrun-") as folder:
        agents = Agents(events, arguments, functools.partial(_shell, job, use_srun), alias, local, only_local)
        variables = {**job.variables, ADDRESS: name, SHIM_ADDRESS: f"{name}-driver", "RINGCOMM_SURVIVE": "1"}
        command = (*wrapper_command("ringcomm._src.launch.stub", options), *job.command)
        elastic_job = replace(job, command=command, variables=variables, remote_shell=str(_make_shim(Path(folder))))
        driver = Driver(elastic_job, membership, limits, agents, launch, options.verbose)
        try:
            return driver.run()
        finally:
            if discovery is not None:
                discovery.stop()


def make_limits(options: argparse.Namespace, hosts: list[Host]) -> tuple[Membership, Limits]:
    slots = sum(host.slots for host in hosts)
    size = options.num_proc or max(options.min_np or 1, min(slots, options.max_np or slots))
    minimum, maximum, resets = options.min_np or size, options.max_np, options.reset_limit
    if options.restarts is not None:
        minimum, maximum, resets = options.min_np or size, options.max_np or size, options.restarts
    if minimum > (maximum or minimum) or size < minimum or size > (maximum or size):
        raise ValueError(
            f"--min-np {minimum}, -np {size} and --max-np {maximum}: each must be at least the one before it"
        )
    cooldown = options.blacklist_cooldown_range
    if cooldown is not None and not 0 < cooldown[0] <= cooldown[1]:
        raise ValueError(
            f"--blacklist-cooldown-range {cooldown[0]} {cooldown[1]}: must be two positive numbers, the smaller first"
        )
    if not options.host_discovery_script and slots < minimum:
        raise ValueError(f"--min-np {minimum} exceeds the number of slots of all hosts, {slots}")
    limits = Limits(
        start=size,
        timeout=float(options.elastic_timeout),
        tick=min(0.1, options.heartbeat_seconds / (2 * HEARTBEATS)),
        resets=resets,
        leave=float(options.leave_seconds),
        copies=options.commit_copies,
        snapshots=_folder(options.snapshots) if options.snapshots else None,
        snapshot_seconds=float(options.snapshot_seconds) if options.snapshots else 0.0,
        restarts_only=options.restarts is not None,
    )
    return Membership(minimum, maximum, tuple(cooldown) if cooldown else None), limits


def _folder(name: str) -> str:
    """Returns the folder's absolute path. Raises ValueError if a part of the path is a file.

    The folder need not exist yet, or on this host: each host may have a separate one.
    """
    folder = existing = os.path.abspath(name)
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise ValueError(f"--snapshots {name}: {existing} is a file, not a folder")
    return folder


def _shell(job: Job, use_srun: bool, host: str) -> list[str]:
    """Returns the words that run a command on another host."""
    if job.ssh_command:
        return [*job.ssh_command, host]
    if use_srun:
        return ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}"]
    return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", *job.ssh_arguments, host]


def _make_shim(folder: Path) -> Path:
    """Writes an executable file that launchers run in place of ssh."""
    shim = folder / "through-agent"
    shim.write_text(f'#!/bin/sh\nexec {shlex.join(bare_command("ringcomm._src.elastic.agent.shim"))} "$@"\n')
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    return shim
