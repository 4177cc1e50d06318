"""Compiles the kernels to PTX. Developers run it after each change of a kernel.

    python csrc/device/kernels/build_ptx.py --nvrtc path/of/libnvrtc.so.12 [--check path/of/ptxas]

It needs NVRTC, but neither a GPU nor a toolkit: `pip install --target DIR
nvidia-cuda-nvrtc-cu12==12.0.140`. A driver accepts PTX of its CUDA version and of older ones, so an
old version is used. ptxas is in nvidia-cuda-nvcc-cu12.

It writes ringcomm/_src/arrays/device/kernels_MODULE.ptx.z, compressed by zlib. The driver compiles
this PTX for its GPU. The first line holds a hash of the sources; a test compares it.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import re
import subprocess
import tempfile
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parents[2] / "ringcomm" / "_src" / "arrays" / "device"
MODULES = ("float16", "bfloat16", "float32", "float64", "integers", "composites", "fill", "strided")  # see entries.inl
# No fused multiply-adds and no fast arithmetic: results equal the CPU kernels' bit by bit.
OPTIONS = ("--gpu-architecture=compute_70", "--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true")
CHECKED = ("sm_70", "sm_80", "sm_90", "sm_100")
DEVICE_SOURCES = (
    "cuda_form.cu",
    "entries.inl",
    "fill.hpp",
    "floats.hpp",
    "formats.hpp",
    "lanes.hpp",
    "memory.hpp",
    "pack.hpp",
    "parameters.hpp",
    "portable.hpp",
    "reduce.hpp",
    "scalers.hpp",
    "strided.hpp",
)


def source_hash() -> str:
    """Returns a hash of the sources of the PTX. Comments and line breaks do not change it."""
    digest = hashlib.sha256(" ".join(OPTIONS).encode())
    for name in DEVICE_SOURCES:
        code = re.sub(r"//[^\n]*", "", (HERE / name).read_text())
        digest.update(f"\0{name}\0{''.join(code.split())}".encode())
    return digest.hexdigest()


def path_of(module: str) -> Path:
    return OUTPUT / f"kernels_{module}.ptx.z"


def read(module: str) -> str:
    return zlib.decompress(path_of(module).read_bytes()).decode()


def heading() -> str:
    return f"// ringcomm {source_hash()}"


class Compiler:
    """Calls NVRTC through its C interface."""

    def __init__(self, library: str) -> None:
        self.nvrtc = ctypes.CDLL(library)

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        size = ctypes.c_size_t()
        getattr(self.nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(self.nvrtc, f"nvrtcGet{what}")(program, text)
        return text.value.decode()

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def ptx(self, module: str) -> str:
        source = (HERE / "cuda_form.cu").read_bytes()
        options = [*OPTIONS, f"--include-path={HERE.parents[1]}", f"--define-macro=RC_MODULE_{module.upper()}"]
        program = ctypes.c_void_p()
        self.nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"cuda_form.cu", 0, None, None)
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        failed = self.nvrtc.nvrtcCompileProgram(program, len(options), words)
        log = self._text(program, "ProgramLog")
        if failed:
            raise SystemExit(log)
        print(log, end="")
        # The driver needs no comments and no empty lines.
        lines = (line.strip() for line in self._text(program, "PTX").splitlines())
        return "\n".join([heading(), *(line for line in lines if line and not line.startswith("//")), ""])


def check(ptx: str, ptxas: str) -> None:
    """Assembles the PTX for each architecture, and prints the resources that the kernels use there."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernels.ptx")
        source.write_text(ptx)
        for architecture in CHECKED:
            done = subprocess.run(
                [ptxas, f"-arch={architecture}", "-v", str(source), "-o", str(Path(folder, "kernels.cubin"))],
                capture_output=True,
                text=True,
            )
            if done.returncode != 0:
                raise SystemExit(f"{architecture}: {done.stderr}")
            registers = [int(number) for number in re.findall(r"Used (\d+) registers", done.stderr)]
            stacks = [int(number) for number in re.findall(r"(\d+) bytes stack frame", done.stderr)]
            spills = [int(number) for number in re.findall(r"(\d+) bytes spill stores", done.stderr)]
            print(
                f"  {architecture}: {len(registers)} kernels, at most {max(registers)} registers, "
                f"{max(stacks)} bytes of stack, {max(spills)} bytes spilled"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvrtc", metavar="LIBRARY", help="compile by this library")
    parser.add_argument("--check", metavar="PTXAS", help="let this assembler have what there is")
    options = parser.parse_args()
    if options.nvrtc:
        compiler = Compiler(options.nvrtc)
        OUTPUT.mkdir(exist_ok=True)
        for module in MODULES:
            text = compiler.ptx(module)
            path_of(module).write_bytes(zlib.compress(text.encode(), 9))
    for module in MODULES:
        text = read(module)
        stale = "" if text.startswith(heading()) else ", OLDER THAN THE SOURCES"
        size = f"{len(text)} bytes, {path_of(module).stat().st_size} compressed"
        print(f"{module}: {text.count('.entry')} kernels, {size}{stale}")
        if options.check:
            check(text, options.check)


if __name__ == "__main__":
    main()
