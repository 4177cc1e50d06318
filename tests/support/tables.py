"""Tables in docs/ that tests write, and the Debian MPIs with which they are measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
DEBIAN = {"mpich": LIBRARIES / "libmpich.so.12", "openmpi": LIBRARIES / "libmpi.so.40"}


def write_rows(page: Path, name: str, rows: Sequence[str]) -> None:
    """Writes rows into the table below the comment `name`, in place of rows with that key."""
    text, mark = page.read_text(), f"<!-- {name} -->\n"
    start = text.index(mark) + len(mark)
    head, rule, *old = text[start:].split("\n\n")[0].splitlines()
    merged = {row.split("|")[1]: row for row in [*old, *rows]}
    page.write_text(text.replace("\n".join([head, rule, *old]), "\n".join([head, rule, *merged.values()]), 1))


def loaded(library: Path, folder: Path) -> dict[str, str]:
    """Returns variables by which mpi4py loads an MPI; for MPICH's ABI, links it in `folder`."""
    if library.name.startswith("libmpi.so.40"):
        return {"MPI4PY_LIBMPI": str(library)}
    (link := folder / "libmpi.so.12").unlink(missing_ok=True)
    link.symlink_to(library)
    return {"MPI4PY_LIBMPI": str(link), "LD_LIBRARY_PATH": str(folder)}
