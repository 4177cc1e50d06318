"""Describes a job independently of the MPI that runs it, and the command line that starts it.

Also selects environment variables: those that ranks on other hosts need, and those that make a
process a rank. lines.py makes a CommandLine from a Job.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from ringcomm._src.launch.hosts import Host, is_local


@dataclass(frozen=True)
class Job:
    """A job: its number of ranks, hosts, program and options."""

    size: int
    command: tuple[str, ...]
    hosts: tuple[Host, ...] = ()  # slots: ranks on it; empty: this host, or the resource manager's hosts
    variables: Mapping[str, str] = field(default_factory=dict)  # environment variables to set for the ranks
    interfaces: tuple[str, ...] = ()
    ssh_command: tuple[str, ...] = ()  # command that replaces ssh
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    tcp: bool = False
    binding: tuple[str, ...] | None = None  # launcher options that replace the default binding
    remote_shell: str = ""  # program of an elastic job that replaces ssh; the ssh_ fields are then unused
    survive: bool = False  # a rank that dies does not end the job
    extra: tuple[str, ...] = ()  # further arguments of the launcher, unchanged

    @property
    def remote(self) -> bool:
        """True if a rank may run on another host."""
        return any(not is_local(host.name) for host in self.hosts)

    @property
    def ssh_arguments(self) -> list[str]:
        port = ["-p", str(self.ssh_port)] if self.ssh_port else []
        return port + (["-i", self.ssh_identity_file] if self.ssh_identity_file else [])

    @property
    def oversubscribed(self) -> bool:
        """True if this host runs more ranks than it has cores that this process may use."""
        here = sum(host.slots for host in self.hosts if is_local(host.name)) if self.hosts else self.size
        return here > len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class CommandLine:
    """A command line, with the environment variables and the file of hosts that it needs."""

    arguments: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    host_variable: str | None = None  # environment variable with the name of the file of hosts; None: no file
    hosts: tuple[str, ...] = ()  # lines of that file
    folder_variable: str | None = None  # environment variable with the name of a folder for the launcher's files

    def __str__(self) -> str:
        """Returns a command for bash.

        Leaves out variables that this process's environment has already: they may be secrets.
        """
        new = {name: value for name, value in self.variables.items() if os.environ.get(name) != value}
        words = [f"{name}={shlex.quote(value)}" for name, value in sorted(new.items())]
        if self.host_variable:
            words.append(f"{self.host_variable}=<(printf '%s\\n' {shlex.join(self.hosts)})")
        return " ".join([*words, shlex.join(self.arguments)])


# Variables of this shell, of this host or of the job of this process. Ranks on other hosts must not
# get them.
_OWN = re.compile(
    r"BASH_FUNC_.*|_|SHLVL|PWD|OLDPWD|HOST|HOSTNAME|DISPLAY|XAUTHORITY|TERM|TERMCAP|WINDOWID|SSH_.*|XDG_.*|DBUS_.*|TMUX.*|STY"
    r"|SLURM.*|SRUN.*|PBS.*|LSB.*|PMI_.*|PMIX_.*|PRTE_.*|OMPI_.*|HYDRA.*|HYDI.*|I_MPI_HYDRA.*"
)
# Variables that make a process a rank of a job. If a rank starts another job, the launcher of that
# job must not pass them on.
_RANK = re.compile(
    r"PMI_(RANK|SIZE|FD|PORT|ID|SPAWNED|CONTROL_.*|ENABLE_.*)|PMI2_.*|PMIX_(?!MCA_).*|PRTE_(?!MCA_).*"
    r"|OMPI_(COMM_WORLD|UNIVERSE|FILE|APP_CTX|FIRST|NUM_APP|ARGV|COMMAND|MCA_(orte|ess|pmix|initial)).*"
    r"|MPI_LOCAL(RANKID|NRANKS)|MPIR_CVAR_CH3_INTERFACE_HOSTNAME|HYDI_CONTROL_FD|HYDRA_CONTROL_FD"
    r"|RINGCOMM_RANK_PROCESS"
)


def exportable(environment: Mapping[str, str]) -> list[str]:
    """Returns the names of the variables that ranks on other hosts should have too, sorted."""
    return sorted(name for name in environment if not _OWN.fullmatch(name))


def without_rank_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without the variables that make this process a rank of a job."""
    return {name: value for name, value in environment.items() if not _RANK.fullmatch(name)}
