"""Compiles the loops that Inductor writes in C++ for one graph together.

A call of the C++ compiler for one loop takes 0.6 s with PyTorch's precompiled header and 3.3 s without it, nearly all
of it for the header: 12 loops in one call take 0.8 and 3.2 s (Zen 4, gcc 12). So all loops of a graph are functions of
one program. A header that is precompiled already is used; precompiling it takes 6.4 s, more than it would save.

Inductor's ``AsyncCompile`` is private: where a version of PyTorch has another one, or writes other programs, loops are
compiled one by one as Inductor does it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, ClassVar

from tilesmith.targets.detect import usable_cores

_BYTES = 1 << 16  # of the loops of one unit, from which more cores take part
# A loop alone in its program: nothing but the function behind the one header.
_LOOP = re.compile(r'\s*#include <torch/csrc/inductor/cpp_prefix\.h>\s*extern "C"\s+void\s+kernel\(')
_HEADER = "#include <torch/csrc/inductor/cpp_prefix.h>\n"
_together: ContextVar[bool] = ContextVar("tilesmith_loops_together", default=False)
_log = logging.getLogger("tilesmith.compile")
Loop = Callable[..., Any]


@contextmanager
def loops_together() -> Iterator[None]:
    """Have the programs that this thread loads meanwhile compile their loops together."""
    if not _is_installed():
        yield
        return
    token = _together.set(True)
    try:
        yield
    finally:
        _together.reset(token)


@cache
def _is_installed() -> bool:
    try:
        _install()
    except (ImportError, AttributeError) as error:
        _log.info("this PyTorch compiles each loop by itself: %s", error)
        return False
    return True


def _install() -> None:
    from torch._inductor.async_compile import AsyncCompile, get_compile_threads
    from torch._inductor.codecache import LambdaFuture

    alone, program_of = AsyncCompile.cpp_pybinding, _program()

    def cpp_pybinding(self: Any, argtypes: list[str], source_code: str) -> Any:
        # With one thread Inductor wants the function at once.
        if not _together.get() or get_compile_threads() <= 1 or not is_loop(source_code):
            return alone(self, argtypes, source_code)
        gathered = getattr(self, "_tilesmith_loops", None)
        if gathered is None or gathered.loaded is not None:
            gathered = self._tilesmith_loops = Loops(program_of, self.submit)
        own = gathered.add(argtypes, source_code)

        def result() -> Loop:
            found = own()
            return found if found is not None else alone(self, argtypes, source_code).result()

        return LambdaFuture(result)

    AsyncCompile.cpp_pybinding = cpp_pybinding


def is_loop(source: str) -> bool:
    """Whether a program of Inductor is one function and nothing else that could stand in another's way."""
    return _LOOP.match(source) is not None and source.count("#include") == 1 and "#define" not in source


class Loops:
    """The loops of one graph until the first of them is asked for, which compiles all.

    Args:
        program_of: Begins to compile a text with its functions' names and types; gives a function that returns the
            loaded module.
        submit: Runs a function in a thread.
    """

    def __init__(self, program_of: Callable[..., Callable[[], Any]], submit: Callable[..., Any]) -> None:
        self._program_of, self._submit = program_of, submit
        self._loops: list[tuple[list[str], str]] = []
        self.loaded: list[Any] | None = None

    def add(self, argtypes: list[str], source: str) -> Callable[[], Loop | None]:
        """Add a loop; what is returned gives its function, or None where the compiler refused them together."""
        number = len(self._loops)
        self._loops.append((argtypes, source))
        return lambda: self._functions()[number]

    def _functions(self) -> list[Any]:
        if self.loaded is None:
            self.loaded = self._load()
        return self.loaded

    def _load(self) -> list[Any]:
        size = sum(len(source) for _, source in self._loops)
        count = min(usable_cores(), len(self._loops), -(-size // _BYTES))
        units = [range(first, len(self._loops), count) for first in range(count)]
        try:
            begun = [self._program_of(*self._text(unit), self._submit) for unit in units]
            modules = [module() for module in begun]
        except Exception as error:  # whatever Inductor raises of a compiler, it will raise again of the loop at fault
            _log.warning("the loops of a graph are compiled one by one: %s", error)
            return [None] * len(self._loops)
        return [getattr(modules[n % count], f"kernel_{n}") for n in range(len(self._loops))]

    def _text(self, unit: Sequence[int]) -> tuple[str, list[tuple[str, list[str]]]]:
        text, functions = [_HEADER], []
        for number in unit:
            argtypes, source = self._loops[number]
            head = _LOOP.match(source)
            assert head is not None  # as ``is_loop`` says
            text.append(f'extern "C" void kernel_{number}({source[head.end() :]}\n')
            functions.append((f"kernel_{number}", argtypes))
        return "".join(text), functions


def _program() -> Callable[..., Callable[[], Any]]:
    """The function that begins to compile a unit, for ``Loops``; AttributeError where Inductor has another form."""
    from torch._inductor import codecache

    base: Any = codecache.CppPythonBindingsCodeCache
    template: str = base.suffix_template
    binding, table = template.find("static PyObject* {entry_func}_py"), template.find("static PyMethodDef")
    row = '{{"{entry_func}", {entry_func}_py, METH_VARARGS, ""}},'
    if not 0 < binding < table < template.find(row) or not base.call_entry_function.startswith("kernel({})"):
        raise AttributeError("Inductor's bindings to Python have another form")
    before, one, after = template[:binding], template[binding:table], template[table:]

    class Together(base):  # type: ignore[misc]
        """Inductor's cache of programs, for programs of several functions."""

        cache: ClassVar[dict[str, Any]] = {}
        entry_function = "kernels"

        @staticmethod
        def cache_clear() -> None:
            Together.cache.clear()

        @classmethod
        def _get_uncompiled_header(cls, device: str) -> str | None:
            return base._get_uncompiled_header(device) if _has_header(codecache._HEADER_DIR) else None

    codecache.clear_on_fresh_cache(Together)

    def begin(text: str, functions: list[tuple[str, list[str]]], submit: Callable[..., Any]) -> Callable[[], Any]:
        parts = [text, before.format(extra_parse_arg="", entry_func="kernels")]
        for name, types in functions:
            given = ", ".join(f"parse_arg<{each.replace('const ', '')}>(args, {n})" for n, each in enumerate(types))
            called = name + base.call_entry_function.removeprefix("kernel").format(given)
            parts.append(one.format(arg_len=len(types), entry_func=name, call_entry_func=called))
        rows = "".join(row.format(entry_func=name) for name, _ in functions)
        parts.append(after.replace(row, "@rows@").format(entry_func="kernels").replace("@rows@", rows))
        loaded: Callable[[], Any] = Together.load_async("".join(parts), "cpu", submit_fn=submit)
        return loaded

    return begin


def _has_header(folder: str) -> bool:
    return os.path.isdir(folder) and any(name.endswith(".gch") for name in os.listdir(folder))
