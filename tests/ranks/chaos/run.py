"""Elastic jobs with random faults at random moments, drawn from a seed.

    python tests/ranks/chaos/run.py --seed 1 --jobs 200
    python tests/ranks/chaos/run.py --seed 1 --jobs 20 --hosts 3     # network namespaces: root and iproute2

Job i of seed s is drawn from s + i; --fault and --phase skip seeds that do not match. A job that
failed is run again with ``--seed <its seed> --jobs 1 --keep``. replay.py and job.py check the
invariants. The exit status is the number of jobs that violate one, at most 100.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "support"), str(HERE.parents[2] / "benchmarks")]

import plans  # noqa: E402
from job import Job, Outcome  # noqa: E402
from leftovers import PRIVATE  # noqa: E402


def main() -> int:
    options = parse()
    if os.geteuid() == 0 and PRIVATE not in os.environ:
        in_private(options.hosts)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also ends the running job
    folder = Path(options.keep or tempfile.mkdtemp(prefix="ringcomm-chaos-"))
    outcomes = []
    try:
        for seed in seeds(options):
            outcomes.append(run_one(seed, options.hosts, folder))
            if not options.keep and not outcomes[-1].wrong:
                shutil.rmtree(folder / str(seed), ignore_errors=True)
    finally:
        report(outcomes)
        wrong = [one for one in outcomes if one.wrong]
        if not wrong and not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return min(100, len(wrong))


def seeds(options: argparse.Namespace) -> Iterator[int]:
    """Yields seeds whose plans have the requested faults and phases."""
    for first in options.seed:
        fit = (seed for seed in itertools.count(first) if fits(plans.draw(seed, options.hosts), options))
        yield from itertools.islice(fit, options.jobs)


def fits(plan: plans.Plan, options: argparse.Namespace) -> bool:
    return plan.has(options.fault, options.phase) if options.fault or options.phase else True


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--jobs", type=int, default=1, help="of this seed and those that follow")
    parser.add_argument("--hosts", type=int, default=0, help="network namespaces, a rank on each; 0: this machine")
    parser.add_argument("--fault", nargs="+", default=[], help="only jobs with such a fault, of plans.py")
    parser.add_argument("--phase", nargs="+", default=[], help="only jobs with a fault, of those, in such a phase")
    parser.add_argument("--keep", help="a folder for the files of all jobs; else those of jobs that failed are kept")
    return parser.parse_args()


def in_private(hosts: int) -> None:
    """Restarts this process with private mounts and a private /dev/shm, which only these jobs use."""
    words = f'mount -t tmpfs tmpfs /dev/shm && {PRIVATE}=1 exec "$@"'
    if hosts or shutil.which("unshare") is None:
        return
    os.execvp("unshare", ["unshare", "--mount", "sh", "-c", words, "sh", sys.executable, *sys.argv])


def run_one(seed: int, hosts: int, folder: Path) -> Outcome:
    plan = plans.draw(seed, hosts)
    place = folder / str(seed)
    shutil.rmtree(place, ignore_errors=True)
    if hosts:
        from lab import Lab

        with Lab(hosts) as lab:
            outcome = Job(plan, place, lab).run()
    else:
        outcome = Job(plan, place).run()
    good = "WRONG" if outcome.wrong else "good"
    where = f" {outcome.wrong}; its files: {place}" if outcome.wrong else ""
    print(
        f"{good} {outcome.seconds:5.1f} s, seed {seed}: {plan.says()}; {outcome.hit} happened; "
        f"{len(outcome.history)} memberships{where}",
        flush=True,
    )
    return outcome


def report(outcomes: list[Outcome]) -> None:
    wrong = [one.plan.seed for one in outcomes if one.wrong]
    print(f"{len(outcomes)} jobs, {sum(one.hit for one in outcomes)} faults; wrong: {wrong or 'none'}")
    kinds: dict[str, list[float]] = {}
    for one in outcomes:
        for kind, times in one.recoveries.items():
            kinds.setdefault(kind, []).extend(times)
    for kind, times in sorted(kinds.items()):
        median, most = statistics.median(times), max(times)
        print(f"  {kind:16} {len(times):4} to the next commit: median {median:5.2f} s, max {most:5.2f} s")


if __name__ == "__main__":
    sys.exit(main())
