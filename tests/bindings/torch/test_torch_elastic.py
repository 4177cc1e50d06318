"""An elastic job equals a run with its memberships, bit for bit; epochs use samples once."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
import mpi_case  # noqa: E402
from elastic_digits import SAMPLES  # noqa: E402
from launching import ROOT, run  # noqa: E402

PROGRAM = ROOT / "tests" / "support" / "elastic_digits.py"
STEPS = 24


@pytest.mark.parametrize("overlap", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_a_rank_is_lost_in_the_middle_of_an_epoch(
    overlap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIGITS_OVERLAP", overlap)
    words = ["-m", "ringcomm", "run", "-np", "3", "--min-np", "2", sys.executable, PROGRAM, tmp_path, STEPS, "1:8"]
    done = run(words, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result").read_text())
    (first, size, begin), (second, other, resumed) = result["history"]
    assert (first, size, begin, second, other) == (1, 3, 0, 2, 2) and resumed in (7, 8)
    # A run with the same memberships, connected by files instead of a lost rank.
    files = [str(tmp_path / name) for name in ("none", "middle", "end")]
    mpi_case.output_of([PROGRAM, tmp_path, resumed, "--from", files[0], "--to", files[1]], tmp_path, 3)
    mpi_case.output_of([PROGRAM, tmp_path, STEPS, "--from", files[1], "--to", files[2]], tmp_path, 2)
    assert Path(f"{files[2]}.digest").read_text() == result["digest"]
    check_samples(tmp_path, resumed)


def check_samples(folder: Path, resumed: int) -> None:
    """Checks the samples of valid steps: the first generation's up to its last commit."""
    epochs: dict[int, list[tuple[int, list[int]]]] = {}
    for file in folder.glob("samples.*"):
        generation = int(file.name.split(".")[1])
        for line in file.read_text().splitlines():
            step, epoch, indices = json.loads(line)
            if generation == 2 or step < resumed:
                epochs.setdefault(epoch, []).append((step, indices))
    last_epoch = max(epochs)
    for epoch, steps in epochs.items():
        seen = Counter(index for _, indices in steps for index in indices)
        if epoch == last_epoch:  # the last epoch is not complete
            assert max(seen.values()) == 1
            continue
        assert set(seen) == set(range(SAMPLES))
        twice = [index for index, count in seen.items() if count > 1]
        assert len(twice) < 3 and max(seen.values()) <= 2
        last = max(step for step, _ in steps)
        assert set(twice) <= {index for step, indices in steps if step == last for index in indices}
