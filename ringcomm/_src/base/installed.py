"""Queries of the installed software: the processor's name, frameworks and their versions, optional modules.

The command line, the launcher, the bindings and the tuning cache use them. No framework is imported.
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
        with open("/proc/cpuinfo", encoding="utf-8") as table:
            for line in table:
                if line.lower().startswith(("model name", "hardware")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def framework_version(name: str) -> str | None:
    """Returns the framework's installed version without importing it; None if it is not installed."""
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


def lacks(module: str, purpose: str, extra: str = "") -> str | None:
    """Returns a line that says how to install an optional module that `purpose` needs; None if it is installed."""
    if importlib.util.find_spec(module) is not None:
        return None
    package, usual = EXTRAS[module]
    return f'{purpose} needs {package}: pip install "ringcomm[{extra or usual}]"'


def require_framework(name: str) -> None:
    """Raises an ImportError that says how to install a binding's framework, if it is missing or too old."""
    version = framework_version(name)
    oldest = OLDEST[name]
    if version is not None and tuple(int(part) for part in version.split(".")[:2]) >= oldest:
        return
    there = "is not installed" if version is None else f"{version} is too old"
    raise ImportError(
        f"ringcomm.{name} needs {name} {'.'.join(map(str, oldest))} or later, which {there}: "
        f'pip install "ringcomm[{name}]"'
    )
