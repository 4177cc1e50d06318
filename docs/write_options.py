"""Writes docs/options.md from ringcomm._src.config.config, which defines the options."""

from collections.abc import Iterator
from pathlib import Path

from ringcomm._src.config import config, horovod_options

HEAD = """# Options

Every option is an environment variable, or a field of `ringcomm.Config`. Variables are read once,
when the first communicator is made; of several variables the first that is set is used. All ranks
use the values of rank 0, except where ranks may differ (timeline, log level). Sizes take a suffix:
`512K`, `64M`, `1G`, powers of 1024. `docs/write_options.py` generates this page.

| variable | default | meaning |
|---|---|---|
"""

HOROVOD = """
## Horovod's variables

Some are other names of options in the table above; ringcomm's own names take precedence. The others
are accepted. Rank 0 logs one note about the variables that are set and have no effect. Variables
that Horovod reads when it is built (`HOROVOD_WITH_...`, `HOROVOD_GPU_...`) have no effect: ringcomm
has no build options.

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
