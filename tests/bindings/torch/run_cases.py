"""Runs the functions ``case_*`` of a module, or of several (a,b), in order, on every rank. By hand:

``cd tests/bindings/torch; mpiexec -n 2 python run_cases.py cases_ops [part of a name]``
"""

import importlib
import os
import sys
import traceback

import ringcomm.torch as hvd
from ringcomm._src.named import runtime


def run_cases(module_names: str, wanted: str = "") -> None:
    """Runs the cases. A failure on one rank ends the job: other ranks would wait for it."""
    modules = [importlib.import_module(name) for name in module_names.split(",")]
    hvd.init()
    cases = [
        (f"{module.__name__}.{name}", case)
        for module in modules
        for name, case in vars(module).items()
        if name.startswith("case_") and wanted in name
    ]
    for name, case in cases:
        before = list(runtime.session().sets)
        try:
            case()
            for one in [one for one in runtime.session().sets if one not in before]:
                hvd.remove_process_set(one)  # the next case may need a set of the same ranks
        except BaseException:
            print(f"rank {hvd.rank()}: {name} failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            os._exit(1)
    hvd.barrier()
    if hvd.rank() == 0:
        print(f"passed {len(cases)} cases on {hvd.size()} ranks", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    run_cases(*sys.argv[1:])
