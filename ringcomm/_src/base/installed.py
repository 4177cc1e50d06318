"""Queries of the installed software: processor, frameworks with versions, optional modules.

The command line, launcher, bindings and tuning cache use the queries. No query imports a framework.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform

FRAMEWORKS = {name: name for name in ("torch", "tensorflow", "keras", "jax", "cupy", "numpy")}
BINDINGS = {name: f"ringcomm.{name}" for name in ("torch", "tensorflow", "keras", "jax")}
OLDEST = {"tensorflow": (2, 17), "keras": (3, 8), "jax": (0, 7)}  # the oldest versions that the bindings support
EXTRAS = {"matplotlib": ("matplotlib", "bench"), "yaml": ("PyYAML", "run"), "cloudpickle": ("cloudpickle", "run")}
EXTRAS |= {"ray": ("ray", "ray"), "pyspark": ("pyspark", "spark")}


def cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.lower().startswith(("model name", "hardware")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def framework_version(name: str) -> str | None:
    """Returns the framework's installed version without importing it; None: not installed."""
    if importlib.util.find_spec(FRAMEWORKS[name]) is None:
        return None
    for distribution in importlib.metadata.packages_distributions().get(FRAMEWORKS[name], [name]):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


def exists(module: str) -> bool:
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        return False
    return spec is not None and spec.origin is not None


def missing_message(module: str, purpose: str, extra: str = "") -> str | None:
    """Returns a message with pip's command if `purpose` needs a missing module, else None."""
    if importlib.util.find_spec(module) is not None:
        return None
    package, default_extra = EXTRAS[module]
    return f'{purpose} needs {package}: pip install "ringcomm[{extra or default_extra}]"'


def require_framework(name: str) -> None:
    """Raises ImportError, with pip's command, if a framework is missing or too old."""
    version = framework_version(name)
    oldest = OLDEST[name]
    if version is not None and tuple(int(part) for part in version.split(".")[:2]) >= oldest:
        return
    state = "it is not installed" if version is None else f"version {version} is installed"
    raise ImportError(
        f"ringcomm.{name} needs {name} {'.'.join(map(str, oldest))} or later, but {state}: "
        f'pip install "ringcomm[{name}]"'
    )
