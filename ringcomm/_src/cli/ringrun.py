"""Implements `ringrun` and `ringcomm run`: starts ranks with the MPI that mpi4py loads."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ringcomm._src.elastic import driver as elastic
from ringcomm._src.launch import lines, settings
from ringcomm._src.launch.hosts import Host, discover, parse_hosts, place, read_hostfile
from ringcomm._src.launch.job import CommandLine, Job
from ringcomm._src.launch.mpi import Mpi, find, launcher
from ringcomm._src.launch.options import make_parser
from ringcomm._src.launch.start import JobRunner, replace, wrapper_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command `ringrun` and returns its exit status."""
    from ringcomm._src.base.version import __version__

    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = make_parser()
    parser.add_argument("-v", "--version", action="version", version=__version__)
    options = parser.parse_args(arguments)
    if options.config_file:
        try:
            parser.set_defaults(**settings.read_config_file(options.config_file, set(vars(options))))
        except (OSError, ValueError) as error:
            parser.error(str(error))
        options = parser.parse_args(arguments)
    return run(options)


def run(options: argparse.Namespace) -> int:
    """Runs `ringrun` with parsed options. Returns the exit status."""
    if options.check_build:
        from ringcomm._src.launch.build import report

        print("\n".join(report()))
        return 0
    try:
        if elastic.is_elastic(options) and not options.dry_run:
            return run_elastic(options)
        job, mpi, line = prepare(options)
        for note in settings.notes(options):
            _print_stderr(note)
        if options.dry_run:
            print(line)
            return 0
        if options.verbose:
            hosts = (
                ", ".join(f"{host.name}: {host.slots}" for host in job.hosts)
                or "this host, or those that Slurm chooses"
            )
            _print_stderr(f"{job.size} ranks ({hosts}) with {mpi}")
            _print_stderr(str(line))
        if options.tag_output:
            return JobRunner(line, job.size, options.start_timeout, options.verbose, job.hosts).run()
        replace(line)
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        _print_stderr(str(error))
    return 2


def _print_stderr(text: str) -> None:
    print(f"ringrun: {text}", file=sys.stderr, flush=True)


def prepare(options: argparse.Namespace) -> tuple[Job, Mpi, CommandLine]:
    """Returns the job, its MPI and its command line.

    Raises ValueError, OSError or RuntimeError if it cannot be started.
    """
    hosts = hosts_of(options)
    size = options.num_proc or options.min_np or sum(host.slots for host in hosts)
    size = size or int(os.environ.get("SLURM_NTASKS") or 0)
    if not size:
        raise ValueError("the number of ranks is not given: add -np N, or hosts with their slots")
    wrapper = wrapper_command("ringcomm._src.launch.rank", options) if options.tag_output else []
    job = make_job(options, size, hosts, wrapper)
    mpi = find()
    return job, mpi, line_of(options, mpi, uses_srun(options, mpi))(job)


def run_elastic(options: argparse.Namespace) -> int:
    """Runs an elastic job and returns its exit status. Raises as `prepare`."""
    for note in settings.notes(options):
        _print_stderr(note)
    mpi = find()
    use_srun = uses_srun(options, mpi)
    hosts = [] if options.host_discovery_script else hosts_of(options) or hosts_of_slurm()
    return elastic.run(options, make_job(options, 1, [], []), hosts, line_of(options, mpi, use_srun), use_srun)


def line_of(options: argparse.Namespace, mpi: Mpi, use_srun: bool) -> Callable[[Job], CommandLine]:
    """Returns the function that makes a job's command line, for srun or the launcher of `mpi`.

    Raises RuntimeError if there is no launcher.
    """
    if use_srun:
        return partial(lines.srun, mpi=mpi, launcher=shutil.which("srun") or "srun")
    return partial(lines.line, mpi=mpi, launcher=options.mpirun or launcher(mpi))


def make_job(options: argparse.Namespace, size: int, hosts: list[Host], before: list[str]) -> Job:
    """Makes the job, which does not depend on the MPI. `before`: words before the program."""
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        raise ValueError("there is no command to run; an example: ringrun -np 2 python train.py")
    if program[0].endswith(".py") and shutil.which(program[0]) is None:
        raise ValueError(f"{program[0]} is not an executable command: write python {shlex.join(program)}")
    return Job(
        size=size,
        command=(*before, *program),
        hosts=tuple(place(hosts, size)) if hosts else (),
        variables=settings.variables(options),
        interfaces=tuple(settings.interface_names(options)),
        ssh_command=tuple(shlex.split(options.ssh_command or "")),
        ssh_port=options.ssh_port,
        ssh_identity_file=options.ssh_identity_file,
        tcp=options.tcp,
        binding=tuple(shlex.split(options.binding_args)) if options.binding_args is not None else None,
        survive=options.survive,
        extra=tuple(shlex.split(options.mpi_args)),
    )


def hosts_of(options: argparse.Namespace) -> list[Host]:
    """Returns the hosts that the options name; empty: this host, or a resource manager's hosts."""
    if options.hosts:
        return parse_hosts(options.hosts)
    if options.hostfile:
        return read_hostfile(options.hostfile)
    if options.host_discovery_script:
        return discover(options.host_discovery_script, options.slots_per_host)
    return []


def hosts_of_slurm(environment: Mapping[str, str] = os.environ) -> list[Host]:
    """Returns the hosts of this Slurm allocation, with one slot per task; empty outside of one.

    Raises OSError, ValueError or subprocess.CalledProcessError if Slurm does not report them.
    """
    nodes, tasks = environment.get("SLURM_JOB_NODELIST"), environment.get("SLURM_TASKS_PER_NODE")
    if not nodes or not tasks:
        return []
    result = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True)
    counts: list[int] = []
    for part in tasks.split(","):  # "2(x3),1"
        count, _, times = part.partition("(x")
        counts += [int(count)] * int(times.rstrip(")") or 1)
    return [Host(name, count) for name, count in zip(result.stdout.split(), counts, strict=True)]


def uses_srun(options: argparse.Namespace, mpi: Mpi) -> bool:
    """Returns True if srun starts the ranks: on request, or if Slurm has the plugin for this MPI."""
    if options.launcher != "auto":
        return bool(options.launcher == "srun")
    if options.mpirun or "SLURM_JOB_ID" not in os.environ or not shutil.which("srun"):
        return False
    plugin = lines.srun_plugin(mpi)
    if plugin in lines.srun_plugins():
        return True
    _print_stderr(
        f"this Slurm has no plugin {plugin!r} for {mpi.vendor}: the launcher of {mpi.vendor} starts the ranks instead"
    )
    return False
