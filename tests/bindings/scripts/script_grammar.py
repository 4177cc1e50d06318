"""A grammar of training scripts: hypothesis draws statements that users write around a step.

A script creates a network and optimizers, and repeats phases of statements. Statements that depend
on the rank let every rank reach the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import indent

from hypothesis import strategies as st
from user_episodes import EPISODES
from user_statements import (
    AFTER_STEPS,
    AFTER_WRAPPING,
    BACKWARDS,
    BEFORE_WRAPPING,
    CHANGES,
    CLEARS,
    CLOSURES,
    EDITS,
    MEANWHILE,
    NETS,
    OPTIMIZERS,
    OPTIONS,
    REAL_OPTIMIZERS,
    SPARSE_OPTIMIZERS,
)

STEP = BACKWARDS + MEANWHILE + EDITS + AFTER_WRAPPING + CHANGES + EPISODES
WANTS_DENSE = (
    "detach()",
    "clip",
    "clamp",
    "numpy",
    "g.dim()",
    "sign",
    "set_(",
    "_foreach",
    "LBFGS",
    "sub_(",
    "create_graph",
    "compression=Doubled",
)
NOT_REENTRANT = {text for text in STEP if "inputs=" in text or "autograd.grad(" in text}
# Not used with synchronised batch normalisation: forward passes of some ranks only, and statements
# that let replicas diverge, because there every rank's weights affect the gradients. Not used with
# compiled nets: retain_graph, which torch refuses; it compiles more of the reference than of the
# product.
APART = ("rank == 0", "2 + rank", "torch.func", "LocalSGD", "retain_graph", "create_graph")
NOT_SYNCED = {text for text in STEP if any(name in text for name in APART)}
NOT_SYNCED |= {text for text in EDITS + OPTIONS if "rank" in text or "process_set" in text}
NOT_SPARSE = {text for text in STEP + OPTIONS if any(name in text for name in WANTS_DENSE)}


def block(head: str, lines: Sequence[str]) -> str:
    return head + "\n" + indent("\n".join(line for line in lines if line), "    ")


@dataclass
class Phase:
    head: str
    body: list[str]
    change: str = ""  # statements before it

    def __str__(self) -> str:
        body = block(self.head, self.body) if self.head else "\n".join(self.body)
        return "\n".join(filter(None, (self.change, body)))


@dataclass
class Program:
    setup: list[str]
    phases: list[Phase] = field(default_factory=list)
    end: str = (
        "see(net)\nnote('kept', len(kept))\nfor gradients in kept:\n    for g in gradients:\n        note('kept', g)"
    )

    def __str__(self) -> str:
        return "\n".join([*filter(None, self.setup), *map(str, self.phases), self.end]) + "\n"


@st.composite
def bodies(draw: st.DrawFn, passes: int, scaled: bool, without: frozenset[str]) -> list[str]:
    """Draws the statements of one step."""

    def one(table: Sequence[str], rarely: bool = False) -> str:
        if rarely and draw(st.integers(0, 3)) < 3:
            return ""
        return draw(st.sampled_from([line for line in table if line not in without] or [""]))

    body = [one(CLEARS)]
    if draw(st.integers(0, 7)) == 7:
        return [*body, one(CLOSURES), "see(net)"]
    backwards = [one(BACKWARDS[:-1]) for _ in range(passes)]
    if scaled:
        backwards = [BACKWARDS[-1]] * passes
    for backward in backwards:
        body += [backward, one(MEANWHILE, rarely=True)]
    reduced = draw(st.booleans())
    edited = draw(st.booleans())
    step = "scaler.step(opt)\nscaler.update()" if scaled else "opt.step()"
    if reduced:
        body.append("opt.synchronize()")
    if scaled and draw(st.booleans()):
        body.append("scaler.unscale_(opt)")
    if edited:
        body += [one(EDITS), one(MEANWHILE, rarely=True)]
    body.append(block("with opt.skip_synchronize():", [step]) if reduced else step)
    return [*body, "see(net)", one(AFTER_STEPS, rarely=True)]


@st.composite
def programs(draw: st.DrawFn, without: frozenset[str] = frozenset()) -> Program:
    """Draws a script. `without`: statements that are not drawn."""

    def one(table: Sequence[str], rarely: bool = False) -> str:
        if rarely and draw(st.integers(0, 2)) < 2:
            return ""
        return draw(st.sampled_from([line for line in table if line not in without] or [""]))

    net = one(NETS)
    if "reentrant=True" in net:
        without |= NOT_REENTRANT
    if "synced" in net:
        without |= NOT_SYNCED
    if "sparse=True" in net:
        without |= NOT_SPARSE
    optimizers = OPTIMIZERS
    if "sparse=True" in net:
        optimizers = SPARSE_OPTIMIZERS
    elif "odd" not in net:
        optimizers = OPTIMIZERS + REAL_OPTIMIZERS
    passes = draw(st.integers(1, 2))
    options = ", ".join(filter(None, (one(OPTIONS), f"backward_passes_per_step={passes}" if passes > 1 else "")))
    if "process_set=" in options:
        # A refusal does not reach a rank outside of the set, which would wait in the next
        # collective of all ranks. There `opt` is an ordinary optimizer: `other` counts its passes.
        without |= {text for text in STEP if "hvd." in text}
    scaled = draw(st.integers(0, 7)) == 7 and "odd" not in net and "sparse=True" not in net
    program = Program(
        [
            f"passes = {passes}",
            f"net = {net}",
            f"inner = {one(optimizers)}",
            one(BEFORE_WRAPPING, rarely=True),
            f"opt = hvd.DistributedOptimizer({', '.join(filter(None, ('inner', options)))})",
            one(AFTER_WRAPPING, rarely=True),
            "scaler = torch.amp.GradScaler('cpu', init_scale=4.0)" if scaled else "",
        ]
    )
    for number in range(draw(st.integers(1, 3))):
        change = one(CHANGES) if number else ""
        if "passes = " in change:
            passes = 3 - passes
        body = draw(bodies(passes, scaled, without))
        if "scheduler = " in "".join(program.setup):
            body.append("scheduler.step()")
        if draw(st.integers(0, 3)) == 3:
            program.phases.append(Phase("", [one(EPISODES)], change))
        else:
            head = f"for _ in range({draw(st.integers(1, 4))}):"
            program.phases.append(Phase(head, body, change))
    return program
