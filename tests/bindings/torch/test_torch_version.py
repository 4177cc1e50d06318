"""Importing ringcomm.torch with a PyTorch that is too old raises an error."""

import os
import subprocess
import sys


def test_an_old_torch_is_named(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text('__version__ = "2.0.1+cu117"\n')
    paths = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", "import ringcomm.torch"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode and "PyTorch 2.1 or later, and this is 2.0.1" in done.stderr, done.stderr
