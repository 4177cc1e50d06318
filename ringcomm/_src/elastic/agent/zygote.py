"""The zygote: an interpreter with the program's modules, which forks ranks for the agent.

It uses neither MPI nor threads: both begin in the child.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import os
import random
import runpy
import select
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from ringcomm._src.elastic.agent.peers import Message, Peer
from ringcomm._src.elastic.agent.processes import (
    in_own_session,
    loaded_modules,
    outlive_parent,
    signal_group,
    wake_at_signals,
)
from ringcomm._src.elastic.agent.segments import remove_orphans

_WITH_BLAS = ("scipy", "sklearn", "skimage", "statsmodels")  # SciPy has a separate OpenBLAS
# Not imported here: their behaviour depends on variables that a program may set before the import.
_NOT_PRELOADED = ("tensorflow", "jax", "jaxlib", "keras", "horovod", "cupy")


def main() -> None:
    """Runs a zygote. In a child that the zygote has forked, runs the program."""
    peer = Peer(socket.socket(fileno=int(sys.argv[1])))
    message, _ = peer.receive()
    command, interpreter = message["command"], message["interpreter"]
    threads = _load(command[interpreter:], message["modules"])
    if threads:
        peer.try_send({"unfit": f"imports of {command[interpreter]} start threads"})
        return
    gc.collect()
    gc.freeze()
    peer.send({"ready": loaded_modules()})
    start = _serve(peer)
    if start is not None:
        _become(*start, interpreter)


# ---- loading ---------------------------------------------------------------------------------------------------------
def _load(program: list[str], modules: list[str]) -> int:
    """Imports the modules that the program probably imports. Returns the number of new threads.

    Threads of NumPy's and SciPy's OpenBLAS, which supports fork, do not count.
    """
    names = list(_imports_of(program))
    _import("numpy")
    if any(name.partition(".")[0] in _WITH_BLAS for name in names):
        _import("scipy.linalg")
    before = len(os.listdir("/proc/self/task"))
    with contextlib.suppress(ImportError, RuntimeError):
        from ringcomm._src.platform.mpi_library import load_only

        load_only()
    for name in [*names, *modules]:
        if name.partition(".")[0] not in _NOT_PRELOADED:
            _import(name)
    _make_optimizer()
    return len(os.listdir("/proc/self/task")) - before


def _import(name: str) -> None:
    with (
        contextlib.suppress(BaseException),
        open(os.devnull, "w") as null,
        contextlib.redirect_stderr(null),
        contextlib.redirect_stdout(null),
    ):
        importlib.import_module(name)


def _make_optimizer() -> None:
    """Creates an optimizer, because the first one imports hundreds of further modules."""
    torch = sys.modules.get("torch")
    if torch is not None:
        with contextlib.suppress(Exception):
            torch.optim.SGD([torch.zeros(1)], lr=0.1)


def _imports_of(program: list[str]) -> Iterator[str]:
    """Yields the modules of installed packages that the script imports.

    The program's own modules are left out, since their import may have side effects.
    """
    try:
        if program[0] == "-m":
            spec = find_spec(program[1])
            path = spec.origin if spec else None
        else:
            path = program[0]
        with open(path or "", "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ImportError, ValueError):
        return
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            if is_installed(name):
                yield name


def is_installed(name: str) -> bool:
    """Returns True if a module belongs to Python or is in a folder of installed packages."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    with contextlib.suppress(ImportError, ValueError, AttributeError):
        spec = sys.modules[top].__spec__ if top in sys.modules else find_spec(top)
        origins = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec else []
        return any("site-packages" in origin or "dist-packages" in origin for origin in origins)
    return False


# ---- forking ---------------------------------------------------------------------------------------------------------
def _serve(peer: Peer) -> tuple[Message, list[int]] | None:
    """Forks until the agent disconnects. In a child, returns the command and descriptors."""
    # If the agent is killed, the zygote must still end its children and remove their files.
    outlive_parent()
    children, start_time, own_pid = set[int](), time.time(), os.getpid()
    wakeup, alarm = wake_at_signals()
    while True:
        ready, _, _ = select.select([peer.fileno(), wakeup], [], [])
        if wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wakeup, 1 << 10)
            _reap(peer, children)
        if peer.fileno() not in ready:
            continue
        try:
            message, fds = peer.receive()
        except EOFError:
            _end(children, start_time)
            return None
        pid = os.fork()
        if not pid:
            in_own_session()
            if os.getppid() != own_pid:  # the parent has died already
                os._exit(1)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in (wakeup, alarm):
                os.close(fd)
            peer.close()
            return message["start"], fds
        for fd in fds:
            os.close(fd)
        children.add(pid)
        peer.try_send({"forked": pid, "rank": message["rank"], "generation": message["generation"]})


def _end(children: set[int], start_time: float) -> None:
    for pid in children:
        signal_group(pid)
    for pid in children:
        os.waitpid(pid, 0)
    remove_orphans(start_time)


def _reap(peer: Peer, children: set[int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            children.discard(found[0])
            peer.try_send({"ended": found[0], "status": os.waitstatus_to_exitcode(found[1])})


# ---- in the child ----------------------------------------------------------------------------------------------------
def _become(request: Message, fds: list[int], interpreter: int) -> None:
    for number in range(3):
        os.dup2(fds[number], number)
        os.close(fds[number])
    os.environ.clear()
    # The environment variables in request["more"] contain descriptor numbers of the process that
    # the launcher started. Here the descriptors have other numbers, because loaded libraries may
    # use the original ones.
    os.environ.update(request["env"] | {name: str(fd) for name, fd in zip(request["more"], fds[3:], strict=True)})
    os.chdir(request["cwd"])
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, request["cores"])
    random.seed()
    sys.modules["numpy"].random.seed()
    if "mpi4py.MPI" in sys.modules:
        mpi: Any = sys.modules["mpi4py.MPI"]
        mpi.Init_thread(mpi.THREAD_MULTIPLE if mpi4py_threads() else mpi.THREAD_SINGLE)
    _hide_this_file()
    try:
        _run(request["command"][interpreter:])
    except BaseException as error:
        _end_alone(error)
        raise


def mpi4py_threads() -> bool:
    return os.environ.get("MPI4PY_RC_THREADS", "1") not in ("0", "false", "no", "off")


def _run(program: list[str]) -> None:
    """Runs the program as the interpreter would."""
    if program[0] == "-m":
        sys.argv = program[1:]
        sys.path[0] = os.getcwd()
        runpy._run_module_as_main(program[1], alter_argv=True)  # type: ignore[attr-defined]
        return
    sys.argv = program
    path = os.path.abspath(program[0])
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    main_module = types.ModuleType("__main__")
    main_module.__dict__.update(__file__=program[0], __builtins__=__builtins__, __spec__=None)
    sys.modules["__main__"] = main_module
    with open(path, "rb") as file:
        code = compile(file.read(), program[0], "exec")
    exec(code, main_module.__dict__)


def _end_alone(error: BaseException) -> None:
    """Ends a rank that fails while MPI runs but ringcomm does not.

    The finalisation of MPI would wait for the other ranks, which wait in init().
    """
    ringcomm_process: Any = sys.modules.get("ringcomm._src.base.process")
    is_initialized = ringcomm_process is not None and ringcomm_process.rank_process is not None
    succeeded = isinstance(error, SystemExit) and error.code in (None, 0)
    if is_initialized or succeeded or "mpi4py.MPI" not in sys.modules:
        return
    status = error.code if isinstance(error, SystemExit) else 1
    if not isinstance(error, SystemExit):
        sys.excepthook(type(error), error, error.__traceback__)
    elif not isinstance(status, int):
        print(status, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status if isinstance(status, int) else 1)


def _hide_this_file() -> None:
    """Hides this file in tracebacks of the program."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
        while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename in _OURS:
            trace = trace.tb_next
        if previous is sys.__excepthook__:
            traceback.print_exception(kind, error, trace)
        else:
            previous(kind, error, trace)

    sys.excepthook = hook


_OURS = (__file__, "<string>", runpy.__file__)
