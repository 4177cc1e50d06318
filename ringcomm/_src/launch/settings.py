"""Converts ringrun's options to environment variables, and reads Horovod's file of options."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ringcomm._src import shims
from ringcomm._src.base.installed import missing_message
from ringcomm._src.launch.options import ACCEPTED, CONTROLLERS


class Setting(NamedTuple):
    """An option that sets an environment variable of the ranks."""

    option: str
    variable: str
    value: Callable[[Any], str] = str


def _flag(on: bool) -> str:
    return "1" if on else "0"


SETTINGS = (
    Setting("fusion_threshold_mb", "RINGCOMM_FUSION_BYTES", lambda megabytes: str(megabytes << 20)),
    Setting("cache_capacity", "RINGCOMM_CACHE_CAPACITY"),
    Setting("timeline_filename", "RINGCOMM_TIMELINE"),
    Setting("timeline_mark_cycles", "RINGCOMM_TIMELINE_MARK_CYCLES", _flag),
    Setting("timeline_last", "RINGCOMM_TIMELINE_LAST"),
    Setting("stall_check_warning_time_seconds", "RINGCOMM_STALL_WARN_SECONDS"),
    Setting("stall_check_shutdown_time_seconds", "RINGCOMM_STALL_FAIL_SECONDS"),
    Setting("log_level", "RINGCOMM_LOG_LEVEL", str.lower),
    Setting("thread_affinity", "HOROVOD_THREAD_AFFINITY"),
)

# Variables in which communication libraries look for the network interfaces that they may use.
INTERFACE_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "FI_TCP_IFACE", "UCX_NET_DEVICES")


def variables(options: argparse.Namespace) -> dict[str, str]:
    """Returns the environment variables that the options set for the ranks.

    Raises ValueError if -x names a variable that is not set.
    """
    found = {}
    if options.tag_output and "PYTHONUNBUFFERED" not in os.environ:
        found["PYTHONUNBUFFERED"] = "1"  # otherwise lines appear only when a buffer is full
    for setting in SETTINGS:
        value = getattr(options, setting.option)
        if value is not None:
            found[setting.variable] = setting.value(value)
    if options.survive:
        found["RINGCOMM_SURVIVE"] = "1"
    if options.no_stall_check:
        found["RINGCOMM_STALL_WARN_SECONDS"] = found["RINGCOMM_STALL_FAIL_SECONDS"] = "0"
    if options.mpi_threads_disable:
        found["MPI4PY_RC_THREAD_LEVEL"] = "serialized"
    if interfaces := interface_names(options):
        found |= dict.fromkeys(INTERFACE_VARIABLES, ",".join(interfaces))
    if options.tcp:
        found |= {"FI_PROVIDER": "tcp", "UCX_TLS": "tcp,self,sm", "NCCL_IB_DISABLE": "1"}
    found |= named_variables(options.variables)
    return found | shims.variables({**os.environ, **found}) if options.as_horovod else found


def interface_names(options: argparse.Namespace) -> list[str]:
    """Returns the names of the network interfaces without duplicates, in the given order."""
    return list(dict.fromkeys(name for names in options.interfaces for name in names))


def named_variables(given: list[str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Parses -x options: ['A=1', 'B'] -> {'A': '1', 'B': value of B in `environment`}.

    Raises ValueError if B is not set.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals and name not in environment:
            raise ValueError(f"-x {name}: this variable is not set here; give a value: -x {name}=...")
        found[name] = value if equals else environment[name]
    return found


def notes(options: argparse.Namespace) -> list[str]:
    """Returns one line for each given option that has no effect."""
    lines = []
    if options.controller:
        lines.append(f"--{options.controller} has no effect: {CONTROLLERS[options.controller]}")
    for option in ACCEPTED:
        value = getattr(options, option.name.replace("-", "_"))
        if value not in (None, False):
            lines.append(f"--{option.name} has no effect: {option.why}")
    return lines


# ---- Horovod's file of options ---------------------------------------------------------------------------------------
_SECTIONS = {
    "params": "",
    "library_options": "",
    "autotune": "autotune_",
    "timeline": "timeline_",
    "stall_check": "stall_check_",
    "logging": "log_",
}
_PLAIN = {"autotune_enabled": "autotune", "log_level": "log_level"}


def read_config_file(path: str, known: set[str]) -> dict[str, Any]:
    """Returns the options that a file sets, by their names in the namespace of argparse.

    The file is YAML if PyYAML is installed, else JSON. Raises OSError, or ValueError if the file
    cannot be parsed or sets an unknown option.
    """
    text = Path(path).read_text(encoding="utf-8")
    try:
        import yaml
    except ImportError:
        try:
            document = json.loads(text)
        except ValueError:
            raise ValueError(f"{path} is not JSON; {missing_message('yaml', 'reading YAML')}") from None
    else:
        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(f"{path}: {error}") from None
    found: dict[str, Any] = {}
    for section, content in (document or {}).items():
        if section == "controller":
            if str(content).lower() not in CONTROLLERS:
                raise ValueError(f"{path}: unknown controller {content!r}; known are {', '.join(CONTROLLERS)}")
            found["controller"] = str(content).lower()
            continue
        if section not in _SECTIONS or not isinstance(content, dict):
            raise ValueError(f"{path}: unknown section {section!r}; known are {', '.join(_SECTIONS)}")
        for key, value in content.items():
            name = _SECTIONS[section] + key
            if name == "stall_check_enabled":
                found["no_stall_check"] = not value
                continue
            name = _PLAIN.get(name, name)
            if name not in known:
                raise ValueError(f"{path}: section {section!r} has no option {key!r}")
            found[name] = value
    return found
