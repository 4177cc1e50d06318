"""`ringcomm.run`, as horovod.run."""

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
    """Calls ``func(*args, **kwargs)`` on every rank of a new job and returns the results, in the order of ranks.

    The function calls :func:`ringcomm.init` itself. What it prints appears here with its rank in front. Function,
    arguments and results are pickled, with cloudpickle if it is installed (lambdas, closures and functions of the main
    script or a notebook need it). The arguments are those of ``horovod.run``.

    Args:
        num_proc, np: number of ranks; np wins.
        min_num_proc, min_np, max_num_proc, max_np: an elastic job of so many ranks at least and at most, see
            docs/elastic.md; `func` is called anew whenever the ranks have changed, and results are of the last ones.
        reset_limit: changes of the ranks, at most.
        cooldown_range: seconds after which a slot whose rank has failed is used again, from the first time to later.
        hosts: 'a:2,b:2'; by default all ranks run on this host.
        hostfile: the same from a file.
        host_discovery_script: a command that prints the same, a host a line; it is run once, or every second in an
            elastic job.
        slots: for hosts that the script names without a number.
        start_timeout: seconds in which all ranks must have started.
        ssh_port, ssh_identity_file: to reach other hosts.
        output_filename: a folder; each rank's output is also written to rank.N/stdout and rank.N/stderr in it.
        verbose: say what is started, and how.
        mpi_args: further arguments for the launcher, in one string.
        network_interfaces: names that ranks may use.
        network_interface: the same, or 'eth0,eth1'.
        executable: the ranks' Python; by default this one.
        disable_cache, use_gloo, use_mpi: accepted; without effect.

    Raises:
        The exception that a rank raised, with its traceback there as ``__cause__``; of several, the first that is not
        the consequence of another's.
        RuntimeError: the job failed otherwise, or the exception cannot be pickled.
        ValueError: arguments that contradict each other, or what cannot be pickled.
    """
    # Not needed by ranks, which should start fast.
    from ringcomm._src.launch.function import call_on_ranks
    from ringcomm._src.launch.hosts import discover, parse_hosts, read_hostfile

    if sum(it is not None for it in (hosts, hostfile, host_discovery_script)) > 1:
        raise ValueError("give hosts or hostfile or host_discovery_script, not both")
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
