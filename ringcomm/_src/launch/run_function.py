"""Defines `ringcomm.run`, with the arguments of horovod.run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int = 1,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: tuple[int, int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    host_discovery_script: str | None = None,
    start_timeout: int | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: int | None = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | Iterable[str] | None = None,
    network_interfaces: Iterable[str] | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
) -> list[Any]:
    """Calls ``func(*args, **kwargs)`` on every rank of a new job and returns the results.

    `func` must call :func:`ringcomm.init`. This process prints every line that a rank writes, with
    the rank's number as prefix. `func`, its arguments and its results are pickled, with cloudpickle
    if it is installed. Lambdas, closures and functions of the main script or a notebook need
    cloudpickle. The parameters are those of ``horovod.run``.

    Parameters
    ----------
    func : Callable[..., Any]
        The function that every rank calls.
    args : Sequence[Any]
        Positional arguments of `func`.
    kwargs : Mapping[str, Any] | None
        Keyword arguments of `func`.
    num_proc, np : int | None
        Number of ranks, by default 1; np takes precedence.
    min_num_proc, min_np, max_num_proc, max_np : int | None
        Smallest and largest number of ranks of an elastic job (docs/elastic.md). `func` is called
        again after each change of the ranks; the results are those of the last calls.
    reset_limit : int | None
        Largest number of changes of the ranks; by default unlimited.
    cooldown_range : tuple[int, int] | None
        Smallest and largest time in seconds before the slot of a failed rank is used again. The
        time doubles with each failure of the slot.
    hosts : str | None
        Hosts and their slots, 'a:2,b:2'; by default all ranks run on this host.
    hostfile : str | None
        A file with hosts and their slots.
    host_discovery_script : str | None
        A command that prints hosts and their slots, one host a line. It is run once, or every
        second in an elastic job.
    slots : int | None
        Slots of hosts that the script prints without a number.
    start_timeout : int | None
        Seconds in which all ranks must have started; by default 120.
    ssh_port, ssh_identity_file : int | None, str | None
        Options of ssh to reach other hosts.
    output_filename : str | None
        A folder; each rank's output is also written to rank.N/stdout and rank.N/stderr in it.
    verbose : int | None
        If set, print the command that is started.
    mpi_args : str | None
        Further arguments for the launcher, in one string.
    network_interfaces : Iterable[str] | None
        Names of the network interfaces that ranks may use.
    network_interface : str | Iterable[str] | None
        The same names, also in one string: 'eth0,eth1'.
    executable : str | None
        The Python interpreter of the ranks; by default this process's.
    disable_cache, use_gloo, use_mpi : bool | None
        Accepted without effect.

    Returns
    -------
    list[Any]
        The results, by rank.

    Raises
    ------
    Exception
        The exception that a rank raised, with its traceback on that rank as ``__cause__``. If
        several ranks raised, the first exception that no other rank caused.
    RuntimeError
        The job failed otherwise, or the exception cannot be pickled.
    ValueError
        Arguments contradict each other, or cannot be pickled.

    Examples
    --------
    This example starts a job, so call it outside of other jobs::

        def summed(value):
            import ringcomm

            ringcomm.init()
            return float(ringcomm.allreduce(value, op=ringcomm.Sum))

        ringcomm.run(summed, args=(2.0,), np=2)  # [4.0, 4.0]
    """
    # Imported here because ranks do not need these modules and should start fast.
    from ringcomm._src.launch.function import call_on_ranks
    from ringcomm._src.launch.hosts import discover, parse_hosts, read_hostfile

    if sum(source is not None for source in (hosts, hostfile, host_discovery_script)) > 1:
        raise ValueError("give only one of hosts, hostfile and host_discovery_script")
    if network_interface is not None and network_interfaces is not None:
        raise ValueError("give network_interface or network_interfaces, not both")
    if use_gloo and use_mpi:
        raise ValueError("give use_gloo or use_mpi, not both")
    size = num_proc if np is None else np
    least, most = min_np or min_num_proc, max_np or max_num_proc
    elastic = least is not None or most is not None
    if np is None and num_proc == 1 and least is not None:
        size = least
    if host_discovery_script is not None and not elastic:
        hosts = ",".join(f"[{host.name}]:{host.slots}" for host in discover(host_discovery_script, slots))
    options: dict[str, Any] = {
        "-np": size,
        "-H": hosts,
        "--hostfile": hostfile,
        "--host-discovery-script": host_discovery_script if elastic else None,
        "--slots-per-host": slots if elastic else None,
        "--min-np": least,
        "--max-np": most,
        "--reset-limit": reset_limit if elastic else None,
        "--start-timeout": start_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--output-filename": output_filename,
    }
    command = [str(word) for name, value in options.items() if value is not None for word in (name, value)]
    if names := network_interface if network_interfaces is None else network_interfaces:
        command += ["--network-interfaces", names if isinstance(names, str) else ",".join(names)]
    command += [f"--mpi-args={mpi_args}"] if mpi_args else []
    command += ["--blacklist-cooldown-range", *map(str, cooldown_range)] if elastic and cooldown_range else []
    command += ["--verbose"] if verbose else []
    named = parse_hosts(hosts) if hosts else read_hostfile(hostfile) if hostfile else []
    return call_on_ranks(func, args, kwargs or {}, None if elastic else size, named, command, executable)
