"""`ringcomm advise`: bounds of the predicted steps, its inputs, its errors."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcomm._src.cli import advise, main, step_model
from ringcomm._src.cli.advise_input import read_sizes, read_timeline
from ringcomm._src.config.config import NETWORK
from ringcomm._src.core import _core

OVERLAPPING = (step_model.synchronous, step_model.overlap_forward)
SHARDED = (step_model.sharded_optimizer, step_model.sharded_model)
FREE = _core.Network(**dict.fromkeys(NETWORK, 0.0))

steps = st.builds(
    step_model.step_by_bytes,
    st.floats(1e-3, 1.0),
    st.floats(0, 1),
    st.lists(st.integers(1, 1 << 24), min_size=1, max_size=30),
)
networks = st.builds(
    lambda alpha, beta: _core.Network(**(NETWORK | {"alpha": alpha, "beta": beta})),
    st.floats(1e-6, 1e-3),
    st.floats(1e-11, 1e-7),
)
ranks_drawn = st.sampled_from([2, 3, 8, 40])
overheads = st.floats(0, 0.9)


def every_method(step, price, overhead):
    yield from (method(step, price, overhead) for method in OVERLAPPING + SHARDED)
    yield from (step_model.local_sgd(step, price, every) for every in (1, 5))


@given(steps, networks, ranks_drawn, overheads)
def test_no_step_beats_its_computation_or_its_bytes(step, network, ranks, overhead):
    price = step_model.prices(ranks, 1, network)
    assert min(every_method(step, price, overhead)) >= step.seconds * (1 - 1e-9)
    received = sum(step.sizes) * network.beta * (1 - 1e-9)
    for method in OVERLAPPING:
        assert method(step, price, overhead) >= received
    for method in SHARDED:
        assert method(step, price, overhead) >= 2 * received * (ranks - 1) / ranks


@given(steps, overheads, ranks_drawn)
def test_without_communication_a_step_is_its_computation(step, overhead, ranks):
    for price in (step_model.prices(1, 1, _core.Network(**NETWORK)), step_model.prices(ranks, 1, FREE)):
        assert list(every_method(step, price, overhead)) == pytest.approx([step.seconds] * 6)


@given(steps, st.floats(1e-11, 1e-6))
def test_overlap_is_at_least_as_fast_if_pieces_cost_nothing_extra(step, beta):
    def price(_, nbytes):
        return nbytes * beta

    rounding = 4 * len(step.sizes) * beta  # pieces end at elements
    assert step_model.overlap_forward(step, price) <= step_model.synchronous(step, price) * (1 + 1e-9) + rounding


@given(steps, st.floats(1e-11, 1e-6), st.floats(1, 100), overheads)
def test_a_faster_network_and_a_smaller_overhead_make_no_step_longer(step, beta, factor, overhead):
    def price_of(rate):
        return lambda _, nbytes: nbytes * rate

    slower = every_method(step, price_of(beta * factor), overhead)
    faster = every_method(step, price_of(beta), overhead)
    undisturbed = every_method(step, price_of(beta), 0.0)
    for long, short, least in zip(slower, faster, undisturbed, strict=True):
        assert least <= short * (1 + 1e-9)
        assert short <= long * (1 + 1e-9)


def test_a_step_by_hand():
    """Two equal items: the gradient of the second one is reduced beside the first one's backward."""
    step = step_model.step_by_bytes(3.0, 1 / 3, [2 << 20, 2 << 20])

    def price(_, nbytes):
        return nbytes / (2 << 20) * 1.5

    # item 1 is reduced from 1 to 2.5, item 0 from 2.5 to 4; the forward pass takes 1
    assert step_model.synchronous(step, price) == pytest.approx(5.0)
    # pieces take 0.1875: item 0 is reduced until 3.625 and used for 0.5, then item 1 for 0.5
    assert step_model.overlap_forward(step, price) == pytest.approx(4.625)
    # from 1 to 2.5 computation has half its speed, so item 0 is reduced from 2.75 to 4.25
    assert step_model.synchronous(step, price, 0.5) == pytest.approx(5.25)


# ---- the command -----------------------------------------------------------------------------------------------------

NETWORK_OPTION = ["--network", "1gbit,50us"]


@pytest.fixture
def sizes(tmp_path):
    file = tmp_path / "sizes.json"
    file.write_text(json.dumps({"embed": [4096, 256], "body": 8 << 20, "head": [4096, 256]}))
    return str(file)


def test_advice_for_sizes(sizes, tmp_path, capsys):
    file = tmp_path / "advice.json"
    command = ["advise", "--model", sizes, "--step-time", "120ms", "--batch", "32", *NETWORK_OPTION]
    assert main([*command, "--ranks", "1,2,16", "--json", str(file)]) == 0
    text, document = capsys.readouterr().out, json.loads(file.read_text())
    assert document["step"]["sizes"] == [4 << 20, 8 << 20, 4 << 20]
    rows = {(row["ranks"], row["method"].split()[0]): row for row in document["rows"]}
    assert rows[1, "synchronous"]["speedup"] == pytest.approx(1)
    for row in document["rows"]:
        assert row["efficiency"] == pytest.approx(0.12 / row["seconds"])
        assert row["speedup"] == pytest.approx(row["ranks"] * row["efficiency"])
    gains = [change["gain"] for change in document["changes"]]
    assert gains == sorted(gains, reverse=True) and gains[0] > 1.5
    assert "Beyond 1 rank, a further rank adds less than half a process." in text
    assert f"1. {document['changes'][0]['what']}: {gains[0]:.2f} times" in text


def test_a_fast_network_needs_no_change(sizes, capsys):
    assert main(["advise", "--model", sizes, "--step-time", "2s", "--network", "100gbit,1us", "--ranks", "2,8"]) == 0
    text = capsys.readouterr().out
    assert "More ranks pay up to 8" in text and "no change gains" in text


def test_further_ranks_pay_while_they_add_half_a_process():
    rows = [advise.Row(ranks, "", 1.0, speedup, 0.0) for ranks, speedup in ((2, 1.8), (4, 3.2), (8, 4.0), (16, 20.0))]
    assert [advise.stops_paying(rows[:end]) for end in (1, 2, 3, 4)] == [2, 4, 4, 4]


def test_a_torchscript_file(tmp_path):
    torch = pytest.importorskip("torch")
    model, file = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2).half()), tmp_path / "model.pt"
    torch.jit.script(model).save(str(file))
    assert read_sizes(str(file)) == {"0.weight": 60, "0.bias": 20, "1.weight": 20, "1.bias": 4}


PLAN = "plan/optimizer0.plan1"


def timeline(period=100e3, forward=30e3, rows=(PLAN, "others")):
    """Returns events of five steps: three gradients, 0, 20 and 60 ms after the first one."""
    events = []
    for tid, name in enumerate(rows):
        events.append({"name": "thread_name", "ph": "M", "tid": tid, "args": {"name": name}})
    for begin in (5e6 + number * period for number in range(6)):
        events.append({"cat": "done", "ph": "i", "tid": 0, "ts": begin})
        events.append({"cat": "done", "ph": "i", "tid": 1, "ts": begin + 1e3})  # an operation beside the steps
        for after, name, size in ((0, "head", 1 << 20), (20e3, "body", 4 << 20), (60e3, "embed", 12 << 20)):
            event = {"name": name, "cat": "gradient", "ph": "i", "tid": 0, "args": {"bytes": size}}
            events.append(event | {"ts": begin + forward + after})
    return events


def test_a_timeline(tmp_path, capsys):
    file = tmp_path / "t.json"
    events = timeline()
    late = {"name": "embed", "cat": "gradient", "ph": "i", "tid": 0, "ts": 4.99e6, "args": {"bytes": 12 << 20}}
    file.write_text(json.dumps([*events[:2], late, *events[2:]]))  # the timeline began within a step
    step = read_timeline(str(file))
    assert (step.forward, step.backward) == (pytest.approx(0.03), pytest.approx(0.06))
    assert step.sizes == (12 << 20, 4 << 20, 1 << 20) and step.ready == pytest.approx((0.06, 0.02, 0))
    assert main(["advise", "--timeline", str(file), "--step-time", "180ms", *NETWORK_OPTION]) == 0
    assert capsys.readouterr().out.startswith("# one process: 180 ms a step, 33% of it forward; 17 MB")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step-time", "1s"], "give --model and --step-time, or --timeline"),
        (["--model", "SIZES"], "give --model and --step-time, or --timeline"),
        (["--model", "SIZES", "--step-time", "0s"], "--step-time must be above 0"),
        (["--model", "SIZES", "--step-time", "1s", "--forward-share", "2"], "--forward-share must be between"),
        (["--model", "SIZES", "--step-time", "1s", "--overhead", "1"], "--overhead must be at least 0 and below 1"),
        (["--model", "SIZES", "--step-time", "1s", "--batch", "0"], "--batch must be at least 1"),
        (["--model", "SIZES", "--step-time", "1s", "--ranks", "0"], "--ranks must be at least 1"),
        (["--model", "none.json", "--step-time", "1s"], "No such file"),
        (["--model", "BAD", "--step-time", "1s"], "'weight' is -1, neither a number of bytes nor a shape"),
        (["--model", "SIZES", "--step-time", "1s", "--network", "SIZES"], "is not a file of 'ringcomm tune --json'"),
        (["--model", "SIZES", "--step-time", "1s", "--network", "fast"], "'fast' is not a link"),
        (["--timeline", "SIZES"], "is not a timeline of ringcomm"),
        (["--timeline", "FOREIGN"], "is not a timeline of ringcomm"),
        (["--timeline", "EMPTY"], "does not show three steps of a DistributedOptimizer"),
        (["--timeline", "BY_PRIORITY"], "does not show three steps of a DistributedOptimizer"),
        (["--timeline", "TIMELINE", "--model", "SIZES"], "--model contradicts --timeline"),
        (["--timeline", "TIMELINE", "--forward-share", "0.3"], "--forward-share contradicts --timeline"),
    ],
)
def test_errors_are_one_line(arguments, message, tmp_path, sizes, capsys):
    texts = {
        "BAD": {"weight": -1},
        "EMPTY": [],
        "FOREIGN": [{"ph": "M", "name": "thread_name"}],
        "TIMELINE": timeline(),
        "BY_PRIORITY": timeline(rows=(PLAN, f"{PLAN}/ready")),
    }
    files = {"SIZES": sizes}
    for name, document in texts.items():
        files[name] = str(tmp_path / f"{name}.json")
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    command = [files.get(argument, argument) for argument in arguments]
    assert main(["advise", *NETWORK_OPTION, *command]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and not captured.out
