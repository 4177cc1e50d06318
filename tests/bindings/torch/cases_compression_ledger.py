"""Encoded gradients: the sum of results and residuals always equals the sum of all inputs.

Weights start at zero and add sums with a learning rate of 1, so they hold the sum of all results. A
rank can compute the inputs of all ranks.
"""

import random

import torch
from mpi4py import MPI
from torch import nn
from torch.utils.checkpoint import checkpoint

import ringcomm
import ringcomm.torch as hvd
from ringcomm._src.platform import bootstrap

# on one host; every parameter with two dimensions is encoded
HERE = {"everywhere": True, "min_elements": 1, "warmup_steps": 0}
FORMATS = [
    hvd.Compression.int8,
    hvd.Compression.onebit(mean="two"),
    hvd.Compression.ternary,
    hvd.Compression.topk(0.1),
    hvd.Compression.threshold(0.3),
    hvd.Compression.powersgd(2, min_compression_rate=1),
]
SHAPES = {"a": (40, 50), "b": (30, 33)}


def gradient(name, shape, step, rank):
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(sum(map(ord, name)) + 7919 * step + 104729 * rank)
    )


class Ledger:
    """Records the inputs, and compares them with results and residuals.

    `mean`: averages over the ranks, with a division before the sum too.
    """

    def __init__(self, wire, process_set=hvd.global_process_set, scaled=False, mean=False, shapes=SHAPES):
        self.set, self.mean, self.wire = process_set, mean, wire
        self.weights = {name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}
        self.given = {name: torch.zeros(shape) for name, shape in shapes.items()}
        self.optimizer = self.made()
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3, enabled=scaled)
        self.number = 0

    def made(self):
        options = {"op": hvd.Average, "gradient_predivide_factor": 2.0} if self.mean else {"op": hvd.Sum}
        return hvd.DistributedOptimizer(
            torch.optim.SGD(self.weights.values(), lr=1.0),
            self.weights.items(),
            compression=self.wire,
            process_set=self.set,
            **options,
        )

    def step(self, unused=(), resting=(), overflow=False, drop=False, ranks=None, in_parts=False):
        """Makes a step.

        `unused`: weights without a gradient; `resting`: ranks without gradients; `ranks`: the ranks
        that take part; `in_parts`: gradients are computed in two parts, the second when the first
        may be in transfer.
        """
        self.optimizer.zero_grad()
        used = [name for name in self.weights if name not in unused]
        parts = {
            rank: {name: gradient(name, self.weights[name].shape, self.number, rank) for name in used}
            for rank in ranks or self.set.ranks
            if rank not in resting
        }
        self.number += 1
        mine = parts.get(hvd.rank(), {})
        if mine:
            product = self._in_parts if in_parts else lambda weight, one: (weight * one).sum()
            loss = self.scaler.scale(sum(product(self.weights[name], one) for name, one in mine.items()))
            (loss * float("inf") if overflow and hvd.rank() == max(parts) else loss).backward()
        if drop:
            return self.optimizer.zero_grad()
        if any(p.grad is not None for p in self.weights.values()) or not self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if not overflow:
            for name in used:
                whole = sum(one[name] for one in parts.values())
                self.given[name] += whole / self.set.size() if self.mean else whole

    @staticmethod
    def _in_parts(weight, one):
        unit = torch.ones((), requires_grad=True)
        parts = (checkpoint(lambda x: (weight * one).sum() * x, unit / 2, use_reentrant=True) for _ in range(2))
        return sum(parts)

    def check(self, told=""):
        residual = self.optimizer.compression_state_dict()
        for name, weight in self.weights.items():
            arrived = -weight.detach()
            left = residual[name].view(arrived.shape) if name in residual else torch.zeros_like(arrived)
            text = f"{told} {self.wire} {name}"
            torch.testing.assert_close(
                arrived + left, self.given[name], atol=2e-3, rtol=1e-4, msg=lambda t, x=text: x + t
            )
            everybody = hvd.allgather(weight.detach()[None], name=f"ledger.{name}", process_set=self.set)
            assert all(torch.equal(one, everybody[0]) for one in everybody), text
        return residual

    # ---- events ------------------------------------------------------------------------------------------------------
    def add_weight(self):
        name = f"late{len(self.weights)}"
        self.weights[name] = nn.Parameter(torch.zeros(20, 30))
        self.given[name] = torch.zeros(20, 30)
        self.optimizer.add_param_group({"params": [self.weights[name]]})
        residual = self.optimizer.compression_state_dict()
        for called in residual.keys() - self.weights.keys():  # a parameter that is added later without a name gets one
            self.weights[called], self.given[called] = self.weights.pop(name), self.given.pop(name)

    def another_session(self):
        hvd.shutdown()
        hvd.init()

    def another_optimizer(self):
        saved = self.optimizer.compression_state_dict()
        self.optimizer = self.made()
        self.optimizer.load_compression_state_dict(saved)


def case_whatever_happens():
    """Runs steps and events, drawn identically on all ranks."""
    for number, wire in enumerate(FORMATS):
        draw = random.Random(number)
        scaled = number % 2 == 0
        ledger = Ledger(wire(**HERE | {"warmup_steps": 4 * (number % 3)}), scaled=scaled, mean=number % 3 == 1)
        events = ["drop", "unused", "in parts", "another_session", "another_optimizer", *["step"] * 4]
        if scaled:
            events += ["overflow", "overflow"]
        else:
            events += ["resting", "all unused"]
        for _ in range(14):
            event = draw.choice(events)
            if event.startswith("another"):
                getattr(ledger, event)()
            elif event == "all unused":
                ledger.step(unused=list(ledger.weights))
            else:
                resting = [draw.randrange(hvd.size())] if event == "resting" else []
                unused = [draw.choice(list(SHAPES))] if event == "unused" else []
                ledger.step(unused, resting, event == "overflow", event == "drop", in_parts=event == "in parts")
            ledger.check(event)


def case_weights_that_come_later():
    for wire in (hvd.Compression.onebit, hvd.Compression.powersgd(2)):
        ledger = Ledger(wire(**HERE))
        for _ in range(2):
            for _ in range(4):
                ledger.step()
            ledger.add_weight()
            ledger.check("added")
        ledger.step()
        ledger.check("after")


def case_owed_is_bit_identical_after_an_overflow():
    """An overflow leaves the residuals bit-identical. The next step scales them to its loss scale."""
    for wire in FORMATS:
        ledger = Ledger(wire(**HERE), scaled=True)
        for _ in range(4):
            ledger.step()
        before, scale = ledger.check(), ledger.scaler.get_scale()
        ledger.step(overflow=True)
        after = ledger.check("overflow")
        assert ledger.scaler.get_scale() == scale / 2 or hvd.size() == 1
        assert all(torch.equal(before[name], after[name]) for name in before)
        ledger.step()
        ledger.check("another scale")


def case_ranks_that_have_joined_owe_what_they_owed():
    """Rank 0 has the most data; ranks that join still reduce and encode their blocks."""
    for wire in FORMATS:
        ledger = Ledger(wire(**HERE))
        for _ in range(4):
            ledger.step()
        steps = 5 - hvd.rank()
        for step in range(5):
            ranks = [rank for rank in range(hvd.size()) if 5 - rank > step]
            if step < steps:
                ledger.step(ranks=ranks)
            else:  # the inputs of the other ranks
                for name, weight in ledger.weights.items():
                    ledger.given[name] += sum(gradient(name, weight.shape, ledger.number, rank) for rank in ranks)
                ledger.number += 1
            if step == steps - 1:
                last = hvd.join()
        assert last == 0
        hvd.broadcast_parameters(ledger.weights, last)
        ledger.check("joined")
        ledger.step()
        ledger.check("together again")


def case_sets_of_ranks():
    """Two sets that share a rank keep separate residuals."""
    if hvd.size() < 3:
        return
    sets = [hvd.add_process_set([0, 1]), hvd.add_process_set([0, 2])]
    for wire in FORMATS:
        mine = [Ledger(wire(**HERE), process_set=one) for one in sets if one.included()]
        for _ in range(6):
            for ledger in mine:
                ledger.step()
        for ledger in mine:
            residual = ledger.check("in a set")
            assert residual["a"].abs().max() > 0, wire


def case_saved_on_some_ranks_goes_on_with_others():
    """Residuals are restored on fewer and on more ranks; their sum or mean is preserved."""
    if hvd.size() < 3:
        return
    fewer = hvd.add_process_set([0, 2])
    for wire in FORMATS:
        for mean in (False, True):
            before = Ledger(wire(**HERE), mean=mean, scaled=mean)
            for _ in range(5):
                before.step()
            saved = before.check()
            ledgers = [Ledger(wire(**HERE), mean=mean, scaled=mean)]
            ledgers += [Ledger(wire(**HERE), fewer, mean=mean, scaled=mean)] if fewer.included() else []
            for ledger in ledgers:
                for name, weight in ledger.weights.items():
                    weight.data.copy_(before.weights[name].data)
                    ledger.given[name] += before.given[name]
                ledger.optimizer.load_compression_state_dict(saved)
                ledger.check("loaded")
                for _ in range(3):
                    ledger.step()
                ledger.check("went on")


def case_fewer_ranks_go_on():
    """Fewer ranks continue in a new session.

    The residuals of the other ranks are lost; means of the rest are preserved.
    """
    if hvd.size() < 3:
        return
    rank, last = hvd.rank(), hvd.size() - 1
    for wire in (hvd.Compression.int4, hvd.Compression.topk(0.1), hvd.Compression.powersgd(2)):
        ledger = Ledger(wire(**HERE), mean=True)
        for _ in range(4):
            ledger.step()
        before = ledger.check()
        hvd.shutdown()
        part = MPI.COMM_WORLD.Split(rank == last, rank)
        hvd.init(part)
        if rank < last:
            after = ledger.optimizer.compression_state_dict()
            for name, total in ledger.given.items():
                total -= (before[name] - after[name]).view(total.shape)
            for _ in range(3):
                ledger.step()
                ledger.check("fewer")
        hvd.shutdown()
        hvd.init()
        part.Free()


def case_between_hosts():
    """Ranks of a host share memory: each rank encodes its slice of the host's sum."""
    key = bootstrap.host_key
    try:
        for host_of in (lambda rank: rank, lambda rank: rank % 2):
            name = f"host{host_of(hvd.rank())}"
            hvd.shutdown()
            bootstrap.host_key = lambda name=name: (name,)
            hvd.init()
            for wire in FORMATS:
                ledger = Ledger(wire(warmup_steps=0), shapes={"a": (150, 200), "b": (60, 41)})
                for step in range(4):
                    ledger.step(drop=step == 2)
                residual = ledger.check("between hosts")
                assert hvd.size() == 1 or residual["a"].abs().max() > 0, wire
    finally:
        hvd.shutdown()
        bootstrap.host_key = key
        hvd.init()


def case_a_mismatch_names_the_parameter_on_every_rank():
    if hvd.size() == 1:
        return
    others = {"ratio": hvd.Compression.topk(0.2), "format": hvd.Compression.onebit, "none": None}
    for wire in (*others.values(), hvd.Compression.topk(0.1, error_feedback=False)):
        usual = hvd.Compression.topk(0.1)(**HERE)
        mine = usual if hvd.rank() else wire and wire(**HERE)
        ledger = Ledger({"a": hvd.Compression.int8(**HERE), "b": mine})
        try:
            ledger.step()
            raise AssertionError("no mismatch")
        except ringcomm.MismatchError as error:
            assert " has b: " in str(error) and " has a: " not in str(error), error
            assert "topk(ratio=0.1)" in str(error), error
