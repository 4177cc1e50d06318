"""What is to be started: the same for every MPI."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from ringcomm._src.launch.hosts import Host, is_local


@dataclass(frozen=True)
class Job:
    """Ranks, hosts and program."""

    size: int
    command: tuple[str, ...]
    hosts: tuple[Host, ...] = ()  # with the number of ranks on each; empty: this host, or what a resource manager gave
    variables: Mapping[str, str] = field(default_factory=dict)  # to set for the ranks
    interfaces: tuple[str, ...] = ()
    ssh_command: tuple[str, ...] = ()  # the words to call in place of ssh
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    tcp: bool = False
    binding: tuple[str, ...] | None = None  # in place of ours
    remote_shell: str = ""  # an elastic job's own file that acts as ssh, which needs none of the three above
    survive: bool = False  # a rank that dies does not end the job
    extra: tuple[str, ...] = ()  # to the launcher, as they are

    @property
    def remote(self) -> bool:
        """Whether a rank may run on another host."""
        return any(not is_local(host.name) for host in self.hosts)

    @property
    def ssh_arguments(self) -> list[str]:
        port = ["-p", str(self.ssh_port)] if self.ssh_port else []
        return port + (["-i", self.ssh_identity_file] if self.ssh_identity_file else [])

    @property
    def crowded(self) -> bool:
        """Whether this host runs more ranks than it has cores for."""
        here = sum(host.slots for host in self.hosts if is_local(host.name)) if self.hosts else self.size
        return here > len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Line:
    """A command line, what it needs in its environment, and a file of hosts that it reads, if any."""

    arguments: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    host_variable: str | None = None  # names the file
    hosts: tuple[str, ...] = ()  # its lines

    def __str__(self) -> str:
        """As bash takes it, without what this process's environment has already: a secret, perhaps."""
        new = {name: value for name, value in self.variables.items() if os.environ.get(name) != value}
        words = [f"{name}={shlex.quote(value)}" for name, value in sorted(new.items())]
        if self.host_variable:
            words.append(f"{self.host_variable}=<(printf '%s\\n' {shlex.join(self.hosts)})")
        return " ".join([*words, shlex.join(self.arguments)])


# Belongs to this shell, this host or a job that this process is part of: not to ranks elsewhere.
_OWN = re.compile(
    r"BASH_FUNC_.*|_|SHLVL|PWD|OLDPWD|HOST|HOSTNAME|DISPLAY|XAUTHORITY|TERM|TERMCAP|WINDOWID|SSH_.*|XDG_.*|DBUS_.*|TMUX.*|STY"
    r"|SLURM.*|SRUN.*|PBS.*|LSB.*|PMI_.*|PMIX_.*|PRTE_.*|OMPI_.*|HYDRA.*|HYDI.*|I_MPI_HYDRA.*"
)
# Tells a process its rank in a job. A launcher started by a rank of another job must not hand that on.
_RANK = re.compile(
    r"PMI_(RANK|SIZE|FD|PORT|ID|SPAWNED|CONTROL_.*|ENABLE_.*)|PMI2_.*|PMIX_(?!MCA_).*|PRTE_(?!MCA_).*"
    r"|OMPI_(COMM_WORLD|UNIVERSE|FILE|APP_CTX|FIRST|NUM_APP|ARGV|COMMAND|MCA_(orte|ess|pmix|initial)).*"
    r"|MPI_LOCAL(RANKID|NRANKS)|MPIR_CVAR_CH3_INTERFACE_HOSTNAME|HYDI_CONTROL_FD|HYDRA_CONTROL_FD"
    r"|RINGCOMM_RANK_PROCESS"
)


def exportable(environment: Mapping[str, str]) -> list[str]:
    """The variables that ranks on other hosts should have too."""
    return sorted(name for name in environment if not _OWN.fullmatch(name))


def outside_of_jobs(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what makes this process a rank of a job."""
    return {name: value for name, value in environment.items() if not _RANK.fullmatch(name)}
