"""Trains a small transformer to continue English text, letter by letter, on all ranks.

    ringrun -np 2 python examples/train_char_lm.py

The text is in every Python installation: its documentation (pydoc's topics), its licence and the
docstrings of its modules. Rank 0 reads it and broadcasts it, so that all ranks train on the same
text.
"""

import argparse
import ast
import os
import pydoc_data.topics
import sys
import sysconfig
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import ringcomm.torch as hvd

ROUNDING = ("none", "fp16", "bf16")
FORMATS = (*ROUNDING, "int8", "int4", "ternary", "onebit", "topk", "threshold", "powersgd")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32, help="global batch: all ranks together")
    parser.add_argument("--context", type=int, default=96, help="letters that the model sees")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--compression", choices=FORMATS, default="none", help="format of gradients between hosts")
    parser.add_argument("--warmup", type=int, default=None, metavar="STEPS", help="first steps, which send int8")
    parser.add_argument("--everywhere", action="store_true", help="and on one host too, for studying convergence")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=300, help="letters to write at the end")
    parser.add_argument("--output", default="output", help="folder for the loss plot; '' for none")
    return parser.parse_args()


def read_text():
    """Returns about 1 MB of English, from files of Python's installation."""
    library = Path(sysconfig.get_paths()["stdlib"])
    pieces = [text for _, text in sorted(pydoc_data.topics.topics.items())]
    pieces += [
        path.read_text(encoding="utf-8", errors="ignore")
        for path in (library / "LICENSE.txt", Path(sys.base_prefix) / "LICENSE.txt")
        if path.exists()
    ]
    for path in sorted(library.glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        pieces += [
            found
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (found := ast.get_docstring(node))
        ]
    return "".join(letter for letter in "\n\n".join(pieces) if letter == "\n" or " " <= letter <= "~")


class CharModel(nn.Module):
    """A decoder-only transformer."""

    def __init__(self, letters, context, width, layers):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, letters)
        self.context = context

    def forward(self, letters):
        length = letters.shape[1]
        hidden = self.letter(letters) + self.place(torch.arange(length))
        mask = torch.triu(torch.full((length, length), float("-inf")), diagonal=1)
        return self.head(self.body(hidden, mask=mask, is_causal=True))


def global_batch(data, step, options):
    """Returns inputs and targets of all ranks, equal for any number of ranks."""
    generator = torch.Generator().manual_seed(options.seed * 1_000_003 + step)
    starts = torch.randint(len(data) - options.context - 1, (options.batch,), generator=generator)
    windows = torch.stack([data[s : s + options.context + 1] for s in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]


def progress_bar(total):
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit="step", disable=None if hvd.rank() == 0 else True)


def compression_of(options):
    wire = getattr(hvd.Compression, options.compression)
    if options.compression in ROUNDING:
        return wire
    return wire(
        everywhere=options.everywhere, warmup_steps=wire.warmup_steps if options.warmup is None else options.warmup
    )


def train(model, data, options):
    """Returns the mean loss of each step and the letters per second."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        op=hvd.Sum,
        compression=compression_of(options),
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    bar = progress_bar(options.steps)
    losses, begin = [], time.perf_counter()
    for step in range(options.steps):
        inputs, targets = (
            torch.tensor_split(part, hvd.size())[hvd.rank()] for part in global_batch(data, step, options)
        )
        optimizer.zero_grad()
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / (
            options.batch * options.context
        )
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if bar is not None:
            bar.set_postfix(loss=f"{loss.item() * options.batch / max(1, len(inputs)):.3f}", refresh=False)
            bar.update()
        if hvd.rank() == 0 and (bar is None or bar.disable) and step % 50 == 49:
            print(f"step {step + 1}", flush=True)
    seconds = time.perf_counter() - begin
    if bar is not None:
        bar.close()
    return hvd.allreduce(
        torch.stack(losses), op=hvd.Sum, name="losses"
    ), options.steps * options.batch * options.context / seconds


def write_sample(model, letters, prompt, count):
    index = {letter: i for i, letter in enumerate(letters)}
    tokens = [index[letter] for letter in prompt if letter in index]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([tokens[-model.context :]]))[0, -1] / 0.7
            tokens.append(int(torch.multinomial(logits.softmax(0), 1, generator=generator)))
    return "".join(letters[token] for token in tokens)


def plot_losses(losses, folder):
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(losses.numpy() / torch.log(torch.tensor(2.0)).item())
    axes.set(xlabel="step", ylabel="training loss (bits per letter)", title=f"letters, {hvd.size()} ranks")
    axes.grid(alpha=0.3)
    path = Path(folder) / "train_char_lm.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def main():
    options = parse_arguments()
    cores = len(os.sched_getaffinity(0))
    hvd.init()
    if "OMP_NUM_THREADS" not in os.environ:  # share the cores with the other ranks of this host
        torch.set_num_threads(max(1, cores // hvd.local_size()))
    torch.manual_seed(options.seed)
    text = hvd.broadcast_object(read_text() if hvd.rank() == 0 else None, root_rank=0)
    letters = sorted(set(text))
    index = {letter: i for i, letter in enumerate(letters)}
    data = torch.tensor([index[letter] for letter in text])
    model = CharModel(len(letters), options.context, options.width, options.layers)
    if hvd.rank() == 0:
        weights = sum(parameter.numel() for parameter in model.parameters())
        print(f"{len(text)} letters of {len(letters)} kinds, {weights} weights, {hvd.size()} ranks", flush=True)
    losses, speed = train(model, data, options)
    if hvd.rank() == 0:
        print(f"training loss: {losses[0]:.3f} at first, {losses[-20:].mean():.3f} at last; {speed:.0f} letters/s")
        if options.output and (path := plot_losses(losses, options.output)):
            print(f"loss plot: {path}")
        if options.sample:
            print("sample:", write_sample(model.eval(), letters, "The ", options.sample), sep="\n")
    hvd.shutdown()


if __name__ == "__main__":
    main()
