"""Implements `ringrun --check-build`: lists the features of this installation in Horovod's format."""

from __future__ import annotations


def report() -> list[str]:
    from ringcomm._src.base.installed import BINDINGS, exists, framework_version
    from ringcomm._src.base.version import __version__
    from ringcomm._src.launch.lines import srun_plugin, srun_plugins
    from ringcomm._src.launch.mpi import find

    slurm = []
    try:
        found = find()
        mpi, available = f"MPI: {found}", True
        plugin, offered = srun_plugin(found), srun_plugins()
        if offered:
            slurm = [(plugin in offered, f"Slurm: srun --mpi={plugin} (srun has {', '.join(offered)})")]
    except RuntimeError as error:
        mpi, available = f"MPI: {error}", False

    def lines(title: str, rows: list[tuple[bool, str]]) -> list[str]:
        return [f"{title}:", *(f"    [{'X' if on else ' '}] {text}" for on, text in rows), ""]

    frameworks = [("tensorflow", "TensorFlow"), ("torch", "PyTorch")]
    return [
        f"ringcomm v{__version__}:",
        "",
        *lines(
            "Available Frameworks",
            [(framework_version(name) is not None and exists(BINDINGS[name]), text) for name, text in frameworks]
            + [(False, "MXNet")],
        ),
        *lines("Available Controllers", [(available, mpi), *slurm, (False, "Gloo")]),
        *lines(
            "Available Tensor Operations",
            [(False, "NCCL"), (False, "DDL"), (False, "CCL"), (available, "MPI"), (False, "Gloo")],
        )[:-1],
    ]
