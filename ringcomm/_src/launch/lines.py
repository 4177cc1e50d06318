"""Builds the command line that starts a job, for the launcher of each MPI and for Slurm's srun."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ringcomm._src.launch.hosts import Host
from ringcomm._src.launch.job import CommandLine, Job, exportable
from ringcomm._src.launch.mpi import INTEL, OPEN_MPI, Mpi
from ringcomm._src.platform import launchers
from ringcomm._src.platform.mpi_library import quick_start


def line(job: Job, mpi: Mpi, launcher: str, environment: Mapping[str, str] = os.environ) -> CommandLine:
    """Returns the command line for the MPI's own launcher."""
    if mpi.family == OPEN_MPI:
        return open_mpi(job, mpi, launcher, environment)
    return (intel_mpi if mpi.family == INTEL else mpich)(job, launcher)


def _host_list(hosts: tuple[Host, ...]) -> str:
    return ",".join(f"[{name}]:{slots}" if ":" in name else f"{name}:{slots}" for name, slots in hosts)


def open_mpi(job: Job, mpi: Mpi, launcher: str, environment: Mapping[str, str] = os.environ) -> CommandLine:
    """Returns the command line for Open MPI, version 4 (ORTE) or 5 (PRRTE).

    The launcher does not bind ranks to cores, because a training process has many threads.
    """
    new, variables = mpi.version >= (5,), _open_mpi_variables(job, mpi, environment)
    words = [launcher, "-np", str(job.size)]
    if os.geteuid() == 0:
        words.append("--allow-run-as-root")
    if job.hosts:
        words += ["-H", _host_list(job.hosts)]
    if job.binding is not None:
        words += job.binding
    else:
        words += ["--bind-to", "none", "--map-by", "slot:OVERSUBSCRIBE" if new else "slot"]
        words += [] if new or job.hosts else ["--oversubscribe"]
    if job.survive:
        words.append("--enable-recovery" if new else "--continuous")
    if job.oversubscribed:
        words += ["--mca", "mpi_yield_when_idle", "1"]
    if job.interfaces:
        words += ["--mca", "btl_tcp_if_include", ",".join(job.interfaces)]
        if job.remote:
            words += ["--prtemca", "prte_if_include"] if new else ["--mca", "oob_tcp_if_include"]
            words.append(",".join(job.interfaces))
    if job.tcp:
        words += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self,sm" if new else "tcp,self,vader"]
    if job.ssh_arguments and not job.remote_shell:
        words += ["--prtemca", "plm_ssh_args"] if new else ["--mca", "plm_rsh_args"]
        words.append(" ".join(job.ssh_arguments))
    agent = job.remote_shell or shlex.join(job.ssh_command)
    if agent and job.remote:  # this host contacts every host, because other hosts may not have the agent
        kind, prefix = ("--prtemca", "plm_ssh") if new else ("--mca", "plm_rsh")
        words += [kind, f"{prefix}_agent", agent, kind, f"{prefix}_no_tree_spawn", "1"]
    # Ranks of this host inherit the launcher's environment; ranks of other hosts get the variables
    # that are named.
    names = sorted({*exportable(environment), *variables}) if job.remote else []
    words += [word for name in names for word in ("-x", name)]
    folder = None
    if not any(name.endswith("tmpdir_base") for name in environment):  # Open MPI refuses two of these
        folder = "PRTE_MCA_prte_local_tmpdir_base" if new else "OMPI_MCA_orte_local_tmpdir_base"
    return CommandLine([*words, *job.extra, *job.command], variables, folder_variable=folder)


def _open_mpi_variables(job: Job, mpi: Mpi, environment: Mapping[str, str]) -> dict[str, str]:
    parameter_files = [
        str(folder / "etc/openmpi-mca-params.conf") for folder in Path(mpi.library or "/x/x").parents[1:4]
    ]
    return quick_start(environment, *parameter_files) | dict(job.variables)


def _hydra(job: Job, launcher: str, variable: str) -> tuple[list[str], dict[str, str]]:
    """Returns arguments and environment variables for MPICH's or Intel MPI's launcher.

    Parameters
    ----------
    launcher : str
        Name of the option that selects the remote shell.
    variable : str
        Name of the variable with the arguments of the remote shell.
    """
    words, variables = ["-iface", job.interfaces[0]] if job.interfaces else [], dict(job.variables)
    if job.remote_shell and job.remote:
        words += [launcher, "ssh", f"{launcher}-exec", job.remote_shell]
    elif job.ssh_command or job.ssh_arguments:
        words += [launcher, "ssh", *([f"{launcher}-exec", job.ssh_command[0]] if job.ssh_command else [])]
        if arguments := [*job.ssh_command[1:], *job.ssh_arguments]:
            variables[variable] = " ".join(arguments)
    return [*words, *(job.binding or ()), *job.extra], variables


def mpich(job: Job, launcher: str) -> CommandLine:
    """Returns the command line for MPICH and MPIs derived from it (MVAPICH, Cray MPICH)."""
    words = [launcher, "-n", str(job.size), "-genvall"]
    if job.survive:
        words.append("-disable-auto-cleanup")
    if job.hosts:
        words += ["-hosts", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
    more, variables = _hydra(job, "-launcher", "HYDRA_LAUNCHER_EXTRA_ARGS")
    return CommandLine([*words, *more, *job.command], variables)


def intel_mpi(job: Job, launcher: str) -> CommandLine:
    """Returns the command line for Intel MPI.

    Intel's Hydra has no slots. If hosts have different numbers of ranks, each host gets a separate
    part of the command line.
    """
    more, variables = _hydra(job, "-bootstrap", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS")
    words = [launcher, "-genvall", *more]
    if job.tcp:
        variables["I_MPI_OFI_PROVIDER"] = "tcp"
    if not job.hosts:
        return CommandLine([*words, "-n", str(job.size), *job.command], variables)
    variables["I_MPI_JOB_RESPECT_PROCESS_PLACEMENT"] = "off"  # else a resource manager's placement applies
    if len({host.slots for host in job.hosts}) == 1:
        names = ",".join(host.name for host in job.hosts)
        words += ["-hosts", names, "-ppn", str(job.hosts[0].slots), "-n", str(job.size), *job.command]
        return CommandLine(words, variables)
    for index, host in enumerate(job.hosts):
        words += [":"] if index else []
        words += ["-n", str(host.slots), "-host", host.name, *job.command]
    return CommandLine(words, variables)


def srun(job: Job, mpi: Mpi, launcher: str = "srun", environment: Mapping[str, str] = os.environ) -> CommandLine:
    """Returns the command line for srun, which starts a step in this process's allocation."""
    words = [launcher, f"--ntasks={job.size}", f"--mpi={srun_plugin(mpi)}", "--kill-on-bad-exit=1", "--export=ALL"]
    if job.remote_shell:
        # In an elastic job, steps of agents (one on each host), and of an earlier generation of
        # ranks that lost a node, may still hold the resources that this step needs.
        words.append("--overlap")
    variables = _open_mpi_variables(job, mpi, environment) if mpi.family == OPEN_MPI else dict(job.variables)
    if "SLURM_CPUS_PER_TASK" in environment and "SRUN_CPUS_PER_TASK" not in environment:
        variables["SRUN_CPUS_PER_TASK"] = environment["SLURM_CPUS_PER_TASK"]  # srun needs this since 22.05
    tasks = environment.get("SLURM_NTASKS", "")
    if tasks.isdigit() and job.size > int(tasks):
        words.append("--overcommit")
    if job.interfaces and mpi.family == OPEN_MPI:
        variables["OMPI_MCA_btl_tcp_if_include"] = ",".join(job.interfaces)
    if job.tcp and mpi.family == OPEN_MPI:
        variables |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self,sm" if mpi.version >= (5,) else "tcp,self,vader"}
    unequal: tuple[str, ...] = ()
    if job.hosts:
        words += [f"--nodes={len(job.hosts)}", f"--nodelist={','.join(host.name for host in job.hosts)}"]
        if len({host.slots for host in job.hosts}) == 1:
            words.append(f"--ntasks-per-node={job.hosts[0].slots}")
        else:
            words.append("--distribution=arbitrary")
            unequal = tuple(host.name for host in job.hosts for _ in range(host.slots))
    words += [*(job.binding or ()), *job.extra, *job.command]
    return CommandLine(words, variables, "SLURM_HOSTFILE" if unequal else None, unequal)


def srun_plugin(mpi: Mpi) -> str:
    """Returns the Slurm plugin through which ranks of this MPI find each other."""
    return launchers.plugin_of(mpi.family)


def srun_plugins() -> list[str]:
    """Returns the plugins that the srun in PATH offers; empty if there is no srun."""
    try:
        result = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError:
        return []
    return [word for word in (result.stdout + result.stderr).split() if re.fullmatch(r"pmi\w+|none", word)]
