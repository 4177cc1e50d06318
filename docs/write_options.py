"""Writes docs/options.md from ringcomm._src.config.config, which is where options are defined."""

from collections.abc import Iterator
from pathlib import Path

from ringcomm._src.config import config, horovod_options

HEAD = """# Options

Every option is an environment variable, read once, when the first communicator is made (of several variables the
first that is set wins), or a field of `ringcomm.Config`. Rank 0's values are used by all ranks, except where
ranks need not agree (timeline, log level). Sizes take a suffix: `512K`, `64M`, `1G`, powers of 1024. This page is
written by `docs/write_options.py`.

| variable | default | meaning |
|---|---|---|
"""

HOROVOD = """
## Horovod's variables

Those that are other names of our options are in the table above; ours go before them. The others are accepted too;
rank 0 logs one note about those that are set and have no effect. What Horovod reads when it is built
(`HOROVOD_WITH_...`, `HOROVOD_GPU_...`) means nothing here, for there is nothing to build.

| variable | here |
|---|---|
"""


def page() -> str:
    rows = []
    for option in config.options():
        variables = ", ".join(f"`{name}`" for name in option["variables"])
        rows.append(f"| {variables} | `{option['default']!r}` | {option['meaning']} |\n")
    return HEAD + "".join(rows) + HOROVOD + "".join(_horovod())


def _horovod() -> Iterator[str]:
    for name, (option, value) in horovod_options.SWITCHES.items():
        yield f"| `{name}` | if on: `{option}` is `{value!r}` |\n"
    for name, why in horovod_options.IGNORED.items():
        yield f"| `{name}` | no effect: {why} |\n"


if __name__ == "__main__":
    Path(__file__).with_name("options.md").write_text(page(), encoding="utf-8")
