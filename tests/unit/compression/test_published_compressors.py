"""Encoders give the same results as independent implementations of the papers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcomm import Compression
from ringcomm._src.core import _core

FLOAT32 = _core.DTYPES.index("float32")
KINDS = ("normal", "heavy", "sparse", "scales", "two values")


def gradient(kind, count, seed):
    """Returns float32 values as of layers: heavy tails, zero rows, different magnitudes."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(count)
    if kind == "heavy":
        values = random.standard_t(2, count)
    elif kind == "sparse":
        values[random.random(count) < 0.9] = 0
    elif kind == "scales":
        values *= 10.0 ** random.integers(-6, 6, count // 512 + 1).repeat(512)[:count]
    elif kind == "two values":
        values = np.where(values < 0, -0.75, 1.5)
    return values.astype(np.float32)


class Encoder:
    """The encoder of a wire format, without ranks. A call returns the decoded values."""

    def __init__(self, wire, count, feedback=False):
        self.feedback = _core.Feedback([count]) if feedback else None
        self.codec = _core.Codec(wire.code, FLOAT32, self.feedback)
        self.sent = np.empty(self.codec.capacity(count), np.uint8)

    def __call__(self, values):
        block, decoded = values.copy(), np.empty_like(values)
        if self.feedback is not None:
            self.feedback.begin()
        self.nbytes = self.codec.encode(block.ctypes.data, len(block), self.sent.ctypes.data)
        self.codec.decode(self.sent.ctypes.data, self.nbytes, decoded.ctypes.data, len(block), False)
        assert np.array_equal(block, decoded)
        return decoded


def encoded(wire, values):
    return Encoder(wire, len(values))(values)


def by_group(values, group, one):
    """Applies `one` to each group of a float64 copy, and concatenates the results."""
    return np.concatenate([one(values[i : i + group].astype(np.float64)) for i in range(0, len(values), group)])


def mean(values):
    return values.mean() if len(values) else 0.0


# ---- the algorithms --------------------------------------------------------------------------------------------------
def one_bit(group):
    """Seide et al. 2014: the sign; each side is reconstructed as its mean."""
    return np.where(group >= 0, mean(group[group >= 0]), mean(group[group < 0]))


def scaled_sign(group):
    """Karimireddy et al. 2019: the sign, times the mean magnitude."""
    return np.abs(group).mean() * np.where(group >= 0, 1, -1)


def ternary_weights(group, share):
    """Li and Liu 2016: elements below a share of the mean magnitude become 0, others their mean."""
    kept = (np.abs(group) >= share * np.abs(group).mean()) & (group != 0)
    return np.where(kept, np.sign(group) * mean(np.abs(group[kept])), 0)


def steps_of(group, most):
    """Returns the step of a group, and its elements as multiples of the step."""
    step = np.abs(group).max() / most
    return step, group / step if step else group


def nearest_integers(group, most):
    step, steps = steps_of(group, most)
    return np.rint(steps) * step


def strom(values, tau):
    """Strom 2015: elements of at least tau, as tau."""
    return np.where(np.abs(values) >= tau, np.copysign(tau, values), 0).astype(np.float32)


def largest(values, k):
    """Aji and Heafield 2017: keeps the k elements of the largest magnitude unchanged."""
    result = np.zeros_like(values)
    chosen = np.argsort(-np.abs(values), kind="stable")[:k]
    result[chosen] = values[chosen]
    return result


# ---- comparison with the papers --------------------------------------------------------------------------------------
GRADIENTS = {
    "kind": st.sampled_from(KINDS),
    "count": st.integers(1, 6000),
    "seed": st.integers(0, 1 << 32),
    "group": st.sampled_from([32, 256, 512, 1024, 2048]),
}
BY_GROUP = {
    "one bit of two means": (lambda group: Compression.onebit(group, "two"), one_bit),
    "one bit": (lambda group: Compression.onebit(group), scaled_sign),
    "ternary": (lambda group: Compression.ternary(0.7, group), lambda one: ternary_weights(one, 0.7)),
    "8 bits": (lambda group: Compression.int8(group), lambda one: nearest_integers(one, 127)),
    "4 bits": (lambda group: Compression.int4(group), lambda one: nearest_integers(one, 7)),
}


def differ(mine, published, values):
    """Marks elements that differ by more than the rounding of float32 sums."""
    return np.abs(mine - published) > 2e-5 * np.abs(published) + 1e-6 * np.abs(values) + 1e-30


def is_near_a_border(name, values, group):
    """Marks elements near a threshold or between steps, whose rounding depends on dtype."""

    def near(one):
        if name == "ternary":
            return np.abs(np.abs(one) - 0.7 * np.abs(one).mean()) <= 1e-5 * np.abs(one).mean()
        step, steps = steps_of(one, 127 if name == "8 bits" else 7)
        return np.abs(np.abs(steps - np.trunc(steps)) - 0.5) < 1e-4 if step else one < 0

    return by_group(values, group, near) if name in ("ternary", "8 bits", "4 bits") else np.zeros(len(values), bool)


@pytest.mark.parametrize("name", BY_GROUP)
@given(**GRADIENTS)
@settings(max_examples=60, deadline=None)
def test_groups(name, kind, count, seed, group):
    make, algorithm = BY_GROUP[name]
    values = gradient(kind, count, seed)
    mine, published = encoded(make(group), values), by_group(values, group, algorithm)
    wrong = differ(mine, published, values) & ~is_near_a_border(name, values, group).astype(bool)
    if name == "ternary" and is_near_a_border(name, values, group).any():
        return  # the mean of a group depends on whether it includes that element
    assert not wrong.any(), (values[wrong], mine[wrong], published[wrong])


@given(count=st.integers(1, 6000), seed=st.integers(0, 1 << 32), group=GRADIENTS["group"])
@settings(max_examples=20, deadline=None)
def test_two_values_come_exactly_as_two_means(count, seed, group):
    values = gradient("two values", count, seed)
    assert np.array_equal(encoded(Compression.onebit(group, "two"), values), values)


@given(
    kind=st.sampled_from(KINDS), count=st.integers(1, 6000), seed=st.integers(0, 1 << 32), bits=st.sampled_from([8, 4])
)
@settings(max_examples=40, deadline=None)
def test_an_integer_is_half_a_step_off_or_by_chance_a_whole_one(kind, count, seed, bits):
    most, values = (127 if bits == 8 else 7), gradient(kind, count, seed)
    step = by_group(values, 256, lambda one: np.full(len(one), steps_of(one, most)[0]))
    for wire, of_step in ((Compression.int8 if bits == 8 else Compression.int4, 0.5), (Compression.qsgd(bits), 1.0)):
        assert np.all(np.abs(encoded(wire, values) - values) <= (of_step + 1e-4) * step)


def drawn(wire, most, values):
    """Returns bounds in [0, 1) of the random number that rounded each element.

    Alistarh et al. 2017 and Wen et al. 2017 round a positive element up if the number is greater
    than the distance to the next step above.
    """
    step, steps = steps_of(values.astype(np.float64), most)
    up = np.rint(encoded(wire, values) / step) > np.floor(steps)
    part = steps - np.floor(steps)
    return np.where(up, 1 - part, 0), np.where(up, 1, 1 - part)


@given(seed=st.integers(0, 1 << 32), group=st.sampled_from([256, 2048]))
@settings(max_examples=10, deadline=None)
def test_rounding_by_chance_is_that_of_the_papers(seed, group):
    """The random number depends on an element's position: it explains all its roundings."""
    least, most = np.zeros(group), np.ones(group)
    for probe in range(40):
        values = np.random.default_rng(seed + probe).uniform(-1, 1, group).astype(np.float32)
        for wire, steps in ((Compression.int8(group, True), 127), (Compression.int4(group, True), 7)):
            low, high = drawn(wire, steps, values)
            least, most = np.maximum(least, low - 1e-4), np.minimum(most, high + 1e-4)
    assert np.all(least <= most)
    assert np.median(most - least) < 0.05  # the bounds determine the numbers
    middle = np.sort((least + most) / 2)
    uniform = (np.arange(group) + 0.5) / group
    assert np.abs(middle - uniform).max() < 2.2 / np.sqrt(group) + 0.05  # the distance of Kolmogorov and Smirnov


@given(kind=st.sampled_from(KINDS), count=st.integers(1, 6000), seed=st.integers(0, 1 << 32))
@settings(max_examples=40, deadline=None)
def test_terngrad_keeps_by_chance_what_has_the_largest_magnitude(kind, count, seed):
    values = gradient(kind, count, seed)
    mine = encoded(Compression.terngrad, values)
    scale = by_group(values, 512, lambda one: np.full(len(one), np.abs(one).max()))
    assert np.all((mine == 0) | (mine == np.sign(values) * scale))
    assert np.all(mine[(np.abs(values) == scale) & (scale > 0)] != 0)
    chance = np.divide(np.abs(values), scale, out=np.zeros(count), where=scale > 0)
    kept = np.count_nonzero(mine)
    assert abs(kept - chance.sum()) <= 5 * np.sqrt((chance * (1 - chance)).sum()) + 1e-3


@given(kind=st.sampled_from(KINDS), count=st.integers(1, 6000), seed=st.integers(0, 1 << 32), tau=st.floats(1e-3, 3))
@settings(max_examples=60, deadline=None)
def test_threshold(kind, count, seed, tau):
    values, tau = gradient(kind, count, seed), np.float32(tau)
    assert np.array_equal(encoded(Compression.threshold(float(tau)), values), strom(values, tau))


@given(
    kind=st.sampled_from(["normal", "heavy", "scales"]),
    count=st.integers(1, 8000),
    seed=st.integers(0, 1 << 32),
    ratio=st.sampled_from([0.001, 0.01, 0.1, 0.25]),
)
@settings(max_examples=60, deadline=None)
def test_largest_of_what_is_sampled_whole(kind, count, seed, ratio):
    """Up to 8191 unequal elements, the encoder keeps exactly the published ones, bit for bit."""
    values = gradient(kind, count, seed)
    published = largest(values, int(np.ceil(float(np.float32(ratio)) * count)))
    if len(np.unique(np.abs(values))) == count:
        assert np.array_equal(encoded(Compression.topk(ratio), values), published)
        halves = encoded(Compression.topk(ratio, values="bf16"), values)
        assert np.all(np.abs(halves - published) <= np.abs(published) / 256)


@given(count=st.integers(8192, 200_000), seed=st.integers(0, 1 << 32), ratio=st.sampled_from([0.01, 0.05, 0.2]))
@settings(max_examples=15, deadline=None)
def test_largest_of_what_is_sampled_in_part(count, seed, ratio):
    """Keeps the largest elements, about the requested number, until their room is full."""
    values = gradient("heavy", count, seed)
    mine = encoded(Compression.topk(ratio), values)
    kept = np.count_nonzero(mine)
    most = int(np.ceil(float(np.float32(ratio)) * count)) * 5 // 4 + 8
    assert 0.5 * ratio * count <= kept <= most
    before = count if kept < most else int(np.flatnonzero(mine)[-1]) + 1
    assert np.array_equal(mine[:before], largest(values[:before], kept))


# ---- with error feedback ---------------------------------------------------------------------------------------------
STEPS = {
    "one bit of two means": (Compression.onebit(512, "two"), lambda v: by_group(v, 512, one_bit)),
    "one bit": (Compression.onebit(512), lambda v: by_group(v, 512, scaled_sign)),
    "threshold": (Compression.threshold(0.5), lambda v: strom(v, np.float32(0.5))),
    "largest": (Compression.topk(0.05), lambda v: largest(v, int(np.ceil(float(np.float32(0.05)) * len(v))))),
}


@pytest.mark.parametrize("name", STEPS)
@given(kind=st.sampled_from(["normal", "heavy"]), count=st.integers(2, 5000), seed=st.integers(0, 1 << 32))
@settings(max_examples=20, deadline=None)
def test_steps_with_error_feedback(name, kind, count, seed):
    """Checks v = gradient + residual; sent = C(v); residual = v - sent."""
    wire, algorithm = STEPS[name]
    encoder, residual = Encoder(wire, count, feedback=True), np.zeros(count, np.float32)
    for step in range(6):
        values = gradient(kind, count, seed + step)
        whole = values + residual
        mine, published = encoder(values), algorithm(whole)
        wrong = differ(mine, published, whole)
        assert not wrong.any(), (step, whole[wrong], mine[wrong], published[wrong])
        residual = whole - mine
