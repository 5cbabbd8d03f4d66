"""The names that a library's functions are linked under, so that two libraries fit into one program.

The sources call each other by names that begin with ``ts_``. A generated header, which every compilation of the
runtime includes first, gives each of them the library's own name: ``ts_library_create`` becomes ``deconv_create``, all
others begin with ``deconv_priv_``. Types keep their names, which no linker sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

PUBLIC: Final = "ts_library_"
_DECLARED = re.compile(rf"^TS_LIBRARY_API [\w *]*?\b({PUBLIC}\w+)\(", re.M)
# A function's definition, or a constant's, as clang-format lays them out: at the beginning of a line.
_FUNCTION = re.compile(r"^(?!static\b|typedef\b|extern\b|else\b|return\b)[a-z]\w*[\w *]*?\b(ts_\w+)\(", re.M)
_CONSTANT = re.compile(r"^(?!static\b|typedef\b|extern\b)[a-z][\w *]*?\b(ts_\w+)(?:\[\w*\])* =", re.M)
_COMMENT = re.compile(r"/\*.*?\*/", re.S)


def private(library: str, name: str) -> str:
    """The name of an internal function or constant of a library."""
    return f"{library}_priv_{name}"


def defined(sources: Iterable[str]) -> tuple[str, ...]:
    """The names with external linkage that C texts define, in order."""
    found: set[str] = set()
    for text in sources:
        plain = _COMMENT.sub("", text)
        found.update(_FUNCTION.findall(plain), _CONSTANT.findall(plain))
    return tuple(sorted(found))


def public_calls(api: str) -> frozenset[str]:
    """The functions that ``ts_library.h`` declares."""
    return frozenset(_DECLARED.findall(api))


def names_header(library: str, names: Iterable[str], public: frozenset[str]) -> str:
    """The header of ``#define`` lines for these names, of which ``public`` are for programs."""
    linked = {name: private(library, name) for name in names}
    linked |= {name: f"{library}_{name.removeprefix(PUBLIC)}" for name in linked.keys() & public}
    lines = "".join(f"#define {name} {own}\n" for name, own in linked.items())
    return f"/* The names of {library}'s functions: no two libraries share one. Generated. */\n{lines}"
