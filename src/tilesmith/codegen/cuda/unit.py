"""A kernel's text and the one generated header in it: constants, tables, types and the arguments of a launch.

A template is CUDA C++ with two marks: ``@SYM@`` is the kernel's symbol, ``@HEADER@`` stands for the header. Everything
that Python derived about a config reaches the text through the header, and the text checks it with ``static_assert``.
A text of several files is ``scoped``: they name ``@SYM@`` alone, and share what stands in front of them. Lines of which
a kernel has one of two versions are ``resolved``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tilesmith.codegen.symbols import make_source
from tilesmith.plan.records import Integer, Parameter, Pointer, Real, Source

HEADER = "@HEADER@"
# NOTE: NVRTC keeps a constant of a namespace or a class as a variable, with its name and address: 15 KB of a cubin of
# 40 KB, and a quarter of its deflated bytes (`benchmarks/kernel_sizes.py`, ResNet-50, NVRTC 13.0). An enumerator leaves
# nothing.
_CONSTANT = re.compile(r"^( *static |)constexpr (int|bool) ([^;\[{]*);", re.MULTILINE)


@dataclass(frozen=True)
class Argument:
    """A value that the kernel takes at run time: a field of its ``struct Run``.

    ``type`` is the field's type in the kernel. A ``parameter`` of None is not passed: the field is 0 in the text.
    """

    name: str
    type: str
    parameter: Parameter | None

    @property
    def declared(self) -> str:
        """The parameter of the kernel; a launch passes integers as ``long long`` and real numbers as ``double``."""
        passed = {Integer: "long long", Real: "double"}.get(type(self.parameter), self.type)
        return f"{passed} {self.name}"

    @property
    def value(self) -> str:
        """The field's initial value."""
        if isinstance(self.parameter, Pointer):
            return self.name
        return f"({self.type}){self.name if self.parameter is not None else 0}"


@dataclass(frozen=True)
class Header:
    """The constants of one kernel, and what it takes at run time.

    ``numbers`` become ``constexpr int``, ``flags`` ``constexpr bool``, ``types`` typedefs and ``tables`` arrays of
    32-bit numbers in constant memory. ``functions`` is device code (an activation, a product) behind them. ``maps`` are
    the names of the tensor maps, which a kernel takes before its ``arguments``.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Sequence[int]] = field(default_factory=dict)
    functions: str = ""
    maps: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()

    def __str__(self) -> str:
        lines = [f"constexpr int {name} = {value};" for name, value in self.numbers.items()]
        lines += [f"constexpr bool {name} = {str(value).lower()};" for name, value in self.flags.items()]
        lines += [f"typedef {value} {name};" for name, value in self.types.items()]
        lines += [
            f"static __constant__ unsigned {name}[] = {{{', '.join(map(str, row))}}};"
            for name, row in self.tables.items()
        ]
        if self.arguments:
            taken = [f"const __grid_constant__ ts_map {name}" for name in self.maps]
            taken += [a.declared for a in self.arguments if a.parameter is not None]
            lines += ["struct Run {", *(f"  {a.type} {a.name};" for a in self.arguments), "};"]
            # A compile unit may hold several kernels, each with its own.
            lines += ["#undef TS_PARAMETERS", f"#define TS_PARAMETERS {', '.join(taken)}"]
            lines += ["#undef TS_RUN", f"#define TS_RUN {{{', '.join(a.value for a in self.arguments)}}}"]
        return "\n".join([*lines, self.functions])


def passed(arguments: Iterable[Argument]) -> tuple[Parameter, ...]:
    """The values of a launch, in the order of the kernel's parameters."""
    return tuple(a.parameter for a in arguments if a.parameter is not None)


def integers(type: str, **values: int) -> tuple[Argument, ...]:
    """Arguments of one integer type, by name."""
    return tuple(Argument(name, type, Integer(value)) for name, value in values.items())


@lru_cache(maxsize=64)
def template(folder: Path, name: str) -> str:
    """The text of ``folder/name.cu``."""
    return (folder / f"{name}.cu").read_text()


def scoped(*parts: str) -> str:
    """The text of a kernel that is made of ``parts``: they stand behind one header, in one namespace."""
    return f"namespace @SYM@_scope {{\n{HEADER}\n{''.join(parts)}}} // namespace @SYM@_scope\n"


def resolved(text: str, **flags: bool) -> str:
    """``text`` where only what holds is left of each ``#if NAME``, ``#else``, ``#endif`` of ``flags``.

    So a text may have two versions of its lines, of which a kernel has one alone. ValueError where a flag has no lines.
    """
    for name, flag in flags.items():
        lines = re.compile(rf"^#if {name}\n(.*?)(?:^#else\n(.*?))?^#endif\n", re.MULTILINE | re.DOTALL)
        text, found = lines.subn(rf"\g<{1 if flag else 2}>", text)
        if not found:
            raise ValueError(f"a text without lines for {name}")
    return text


def _enumerators(constants: re.Match[str]) -> str:
    indent = constants[1].removesuffix("static ")
    return f"{indent}enum : {constants[2]} {{ {constants[3]} }};"


def unit(op: str, dtype: str, tile: str, arch: str, prelude: str, text: str, header: Header) -> Source:
    """The source of a kernel: ``text`` with its header, named as ``codegen.symbols`` says.

    Constants of ``text`` outside of functions become enumerators: ``constexpr`` at the beginning of a line, and
    ``static constexpr`` members of classes.
    """
    if HEADER not in text:
        raise ValueError(f"a template must have the mark {HEADER}")
    body = _CONSTANT.sub(_enumerators, text.replace(HEADER, str(header)))
    return make_source("cuda", op, dtype, tile, arch, prelude, body)
