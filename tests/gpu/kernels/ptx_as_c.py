"""Translates the kernels' PTX to C, so that tests run the package's PTX without a GPU.

It supports only the PTX that NVRTC makes of these kernels; anything else is an error. Conversions
give the NaNs that PTX's manual documents for a device: 0x7FFF in float16, 0x7FFFFFFF in float32.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

REGISTERS = {"pred": "int", "b16": "uint16_t", "b32": "uint32_t", "b64": "uint64_t", "f32": "float", "f64": "double"}
SPECIAL = {"%ctaid.x": "block", "%nctaid.x": "blocks", "%tid.x": "thread", "%ntid.x": "threads"}
BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

PROLOGUE = r"""
#include <stddef.h>
#include <stdint.h>
#include <string.h>
typedef unsigned char u8_t;
static float f32_bits(uint32_t b) { float f; memcpy(&f, &b, 4); return f; }
static double f64_bits(uint64_t b) { double f; memcpy(&f, &b, 8); return f; }
static float narrow64(double d) { return d == d ? (float)d : f32_bits(0x7FFFFFFFu); }
static double widen32(float f) { return f == f ? (double)f : f64_bits(0x7FFFFFFFFFFFFFFFull); }
static float widen16(uint16_t h) {
  _Float16 f; memcpy(&f, &h, 2);
  return f == f ? (float)f : f32_bits(0x7FFFFFFFu);
}
static uint16_t narrow32(float f) {
  _Float16 h = (_Float16)f; uint16_t b; memcpy(&b, &h, 2);
  return f == f ? b : 0x7FFF;
}
static uint32_t bfi(uint32_t a, uint32_t b, uint32_t at, uint32_t n) {
  uint32_t mask = (n < 32 ? (1u << n) - 1 : ~0u) << at;
  return (b & ~mask) | ((a << at) & mask);
}
static uint32_t prmt(uint32_t a, uint32_t b, uint32_t how) {
  uint64_t both = (uint64_t)b << 32 | a; uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    uint32_t s = how >> (4 * i) & 15, byte = both >> (8 * (s & 7)) & 255;
    if (s & 8) byte = byte & 128 ? 255 : 0;
    out |= byte << (8 * i);
  }
  return out;
}
#define SHL(T, a, n) ((n) >= 8 * sizeof(T) ? 0 : (T)((T)(a) << (n)))
#define SHR(T, a, n) ((n) >= 8 * sizeof(T) ? 0 : (T)((T)(a) >> (n)))
#define LOAD(to, T, from) do { T _v; memcpy(&_v, (const void*)(from), sizeof _v); (to) = _v; } while (0)
#define GLOBAL(n, from) do { if ((from) % (n) != 0) __builtin_trap(); } while (0)
#define STORE(T, to, v) do { T _v = (T)(v); memcpy((void*)(to), &_v, sizeof _v); } while (0)
#define COPY(to, from) memcpy(&(to), &(from), sizeof(to))
"""


def c_type(suffix: str) -> str:
    kind, bits = suffix[0], suffix[1:]
    if kind == "f":
        return {"32": "float", "64": "double"}[bits]
    return ("int" if kind == "s" else "uint") + bits + "_t"


def operand(text: str) -> str:
    text = text.strip()
    if text in SPECIAL:
        return SPECIAL[text]
    if text.startswith("0f"):
        return f"f32_bits(0x{text[2:]}u)"
    if text.startswith("0d"):
        return f"f64_bits(0x{text[2:]}ull)"
    if re.fullmatch(r"-?\d+", text):
        return f"({text}ll)" if int(text) < 2**63 else f"({text}ull)"
    if text.startswith("%"):
        return text[1:]
    if text.endswith("_param_0"):
        return "(uint64_t)P"
    raise ValueError(text)


def register_class(text: str) -> str:
    return re.sub(r"\d+$", "", text)


def place(text: str) -> str:
    base, _, offset = text.strip("[] ").partition("+")
    return f"({operand(base)} + {offset or 0})"


def arguments(text: str) -> list[str]:
    return re.findall(r"\{[^}]*\}|[^,]+", re.sub(r"\s", "", text))


def listed(text: str) -> list[str]:
    return [operand(one) for one in text.strip("{} ").split(",")]


def move(to: str, source: str) -> str:
    if source.startswith("{"):
        parts = listed(source)
        half = "uint16_t" if to.startswith("%r") and not to.startswith("%rd") else "uint32_t"
        return f"{{ {half} _p[2] = {{{', '.join(parts)}}}; memcpy(&{operand(to)}, _p, sizeof _p); }}"
    if to.startswith("{"):
        first, second = listed(to)
        source = operand(source)
        half = f"sizeof {first}"
        return f"memcpy(&{first}, &{source}, {half}); memcpy(&{second}, (u8_t*)&{source} + {half}, {half});"
    d, s = operand(to), operand(source)
    if source.startswith("%") and source not in SPECIAL and register_class(d) != register_class(s):
        return f"COPY({d}, {s});"
    return f"{d} = {s};"


def convert(kinds: list[str], d: str, s: str) -> str:
    to, source = kinds[-2:]
    if to[0] == source[0] == "f":
        return f"{d} = {'widen' if int(to[1:]) > int(source[1:]) else 'narrow'}{source[1:]}({s});"
    return f"{d} = ({c_type(to)})({c_type(source)})({s});"


def statement(code: str, rest: str) -> str:
    name, *kinds = code.split(".")
    args = arguments(rest)
    if name == "bra":
        return f"goto {args[0].strip('$')};"
    if name == "ret":
        return "return;"
    if name == "ld" and kinds[0] in ("param", "global"):
        targets, source = listed(args[0]), place(args[1])
        kind = c_type(kinds[-1])
        check = f"GLOBAL({len(targets)} * sizeof({kind}), {source}); " if kinds[0] == "global" else ""
        return check + " ".join(f"LOAD({t}, {kind}, {source} + {i} * sizeof({kind}));" for i, t in enumerate(targets))
    if name == "st":
        values, to, kind = listed(args[1]), place(args[0]), c_type(kinds[-1])
        stores = " ".join(f"STORE({kind}, {to} + {i} * sizeof({kind}), {v});" for i, v in enumerate(values))
        return f"GLOBAL({len(values)} * sizeof({kind}), {to}); {stores}"
    if name == "mov":
        return move(args[0], args[1])
    d, *s = [operand(one) for one in args]
    kind = kinds[-1]
    if name == "cvta":
        return f"{d} = {s[0]};"
    if name == "cvt":
        return convert(kinds, d, s[0])
    if name == "selp":
        return f"{d} = {s[2]} ? {s[0]} : {s[1]};"
    if name == "setp":
        if kinds[0] in ("num", "nan"):
            return f"{d} = {'!' if kinds[0] == 'nan' else ''}({s[0]} == {s[0]} && {s[1]} == {s[1]});"
        cast = c_type(kind.replace("b", "u"))
        return f"{d} = ({cast}){s[0]} {COMPARE[kinds[0]]} ({cast}){s[1]};"
    if kind == "pred":
        return f"{d} = !{s[0]};" if name == "not" else f"{d} = {s[0]} {BINARY[name]} {s[1]};"
    if name == "mul" and kinds[0] == "wide":
        wide = f"uint{2 * int(kind[1:])}_t"
        return f"{d} = ({wide}){s[0]} * ({wide}){s[1]};"
    whole = "u" + kind[1:] if kind[0] in "sb" and name != "div" else kind
    cast = c_type(whole)
    if name in BINARY:
        return f"{d} = ({cast})(({cast}){s[0]} {BINARY[name]} ({cast}){s[1]});"
    simple = {
        "min": "{c}{a} < {c}{b} ? {c}{a} : {c}{b}",
        "neg": "{c}(0 - {c}{a})",
        "abs": "(int32_t){a} < 0 ? 0u - {a} : {a}",
        "shl": "SHL({t}, {a}, {b})",
        "shr": "SHR({t}, {a}, {b})",
        "bfi": "bfi({all})",
        "prmt": "prmt({all})",
    }
    return f"{d} = {simple[name].format(c=f'({cast})', t=cast, a=s[0], b=s[-1], all=', '.join(s))};"


def function(name: str, size: int, body: str) -> Iterator[str]:
    place = "uint32_t block, uint32_t blocks, uint32_t thread, uint32_t threads"
    yield f"static void {name}_thread(const u8_t* P, {place}) {{"
    for line in body.splitlines():
        if match := re.match(r"\.reg \.(\w+)\s+%([a-z]+)<(\d+)>;", line):
            names = ", ".join(f"{match[2]}{i}" for i in range(int(match[3])))
            yield f"{REGISTERS[match[1]]} {names};"
        elif match := re.match(r"\$(\w+):", line):
            yield f"{match[1]}:;"
        elif match := re.match(r"(?:@(!?)%(p\d+) )?([\w.:]+)\s*([^;]*);", line):
            if match[3].startswith("."):
                continue
            condition = f"if ({match[1]}{match[2]}) " if match[2] else ""
            yield f"{condition}{{ {statement(match[3], match[4])} }}"
        elif line.strip():
            raise ValueError(line)
    yield f"""}}
void {name}_host(void** arguments, unsigned blocks, unsigned threads) {{
  u8_t P[{size}]; memcpy(P, arguments[0], {size});
  for (unsigned b = 0; b < blocks; ++b)
    for (unsigned t = 0; t < threads; ++t) {name}_thread(P, b, blocks, t, threads);
}}
size_t {name}_parameter_sizes(size_t* out) {{ if (out) *out = {size}; return 1; }}"""


def as_c(ptx: str) -> str:
    pieces = [PROLOGUE]
    for match in re.finditer(
        r"\.entry (\w+)\(\s*\.param \.align 8 \.b8 \w+\[(\d+)\]\s*\)[^{]*\{\n(.*?)\n\}", ptx, re.S
    ):
        pieces += function(match[1], int(match[2]), match[3])
    return "\n".join(pieces)
