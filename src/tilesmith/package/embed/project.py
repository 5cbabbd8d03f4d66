"""The files of a library's project: sources, headers, build files and programs, as one mapping of paths to text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import tilesmith.runtime
from tilesmith.package.embed.contents import (
    ArchKernels,
    by_arch,
    contents_text,
    identifier,
    kernel_text,
    package_text,
    pair_of,
    parts_header,
)
from tilesmith.package.embed.names import PUBLIC, defined, names_header, public_calls
from tilesmith.package.embed.programs import problems_header, sample_parts
from tilesmith.package.embed.records import Library
from tilesmith.package.records import Kind
from tilesmith.problems.rewrite import Signature
from tilesmith.toolchain.compilers import linked_flags

SOVERSION: Final = "1"  # grows when a program must be compiled again; ts_types.h's TS_ABI_VERSION says what changed
STATIC, SHARED = "static", "shared"
_CSRC = Path(tilesmith.runtime.__file__).parent / "csrc"
_TEMPLATES = Path(__file__).parent / "templates"
_TYPES, _API = "ts_types.h", "ts_library.h"
# The contents of a library without kernels, and signatures, which are checked when packages are installed.
_LEFT_OUT = (
    "ts_library_empty.c", "ts_signature.c", "ts_signature.h", "ts_ed25519.c", "ts_ed25519.h", "ts_sha512.c",
    "ts_sha512.h",
)  # fmt: skip
_REFERENCE = "ts_reference"  # begins the names of its files
_FAST = ("ts_cuda_run", "ts_inflate", "ts_library_run", "ts_lzma", "ts_pool", "ts_run", "ts_sha256", "ts_wait")
_HOLE = re.compile(r"@([A-Z_]+)@")
_LINKS = "-lpthread -ldl -lm"


@dataclass(frozen=True)
class ProjectOptions:
    """``kinds`` of library that ``make`` builds: ``static``, ``shared`` or both; ``reference``: whether the plain
    reference is linked in, which computes every problem that no kernel was made for."""

    kinds: tuple[str, ...] = (STATIC,)
    reference: bool = True


def project_files(library: Library, options: ProjectOptions) -> dict[str, str]:
    """Every file of the project by its path, ``/`` between folders. The same library gives the same text."""
    name, archs = library.name, by_arch(library)
    runtime = dict(_runtime_texts())
    if not options.reference:
        runtime = {file: text for file, text in runtime.items() if not file.startswith(_REFERENCE)}
    files = {f"src/runtime/{file}": text for file, text in runtime.items() if file != _TYPES}
    files[f"include/tilesmith/{_TYPES}"] = runtime[_TYPES]
    files[f"include/{name}.h"] = public_header(name, runtime[_API])
    own = [text for file, text in runtime.items() if file.endswith(".c")]
    names = sorted({*defined(own), "ts_library_contents"})
    public = public_calls(runtime[_API])
    visible = '#define TS_LIBRARY_API __attribute__((visibility("default")))\n'
    visible += "" if options.reference else "#define TS_WITHOUT_REFERENCE 1\n"
    files[f"src/{name}_names.h"] = names_header(name, names, public) + visible
    files[f"src/{name}_parts.h"] = parts_header(library)
    files[f"src/{name}_contents.c"] = contents_text(library)
    for part in library.parts:
        files[f"src/packages/{identifier(part.target.name)}.c"] = package_text(library, part)
    for each in archs:
        machine = each.parts[0].machine
        for kernel in each.kernels:
            files[f"src/kernels/{each.arch}/{kernel.symbol}.c"] = kernel_text(library, kernel, machine)
    signatures = _signatures(library)
    files["tests/problems.h"] = problems_header(signatures)
    holes = _holes(library, options) | sample_parts(signatures[0])
    makes = [filled("kernels.mk", _of_arch(each)) for each in archs]
    cmakes = [filled("kernels.cmake", {"UPPER": name.upper(), **_of_arch(each)}) for each in archs]
    for path, template in (
        (f"include/{name}.hpp", "library.hpp"), ("tests/sample.c", "sample.c"), ("tests/self_test.c", "self_test.c"),
        ("Makefile", "Makefile"), ("CMakeLists.txt", "CMakeLists.txt"), (f"lib/pkgconfig/{name}.pc", "library.pc"),
        (f"lib/cmake/{name}/{name}Config.cmake", "Config.cmake"), ("README.md", "README.md"),
        (f"lib/cmake/{name}/{name}ConfigVersion.cmake", "ConfigVersion.cmake"), (".gitignore", "gitignore"),
    ):  # fmt: skip
        files[path] = filled(template, {**holes, "KERNELS": "".join(makes if template == "Makefile" else cmakes)})
    return files


def filled(template: str, holes: Mapping[str, str]) -> str:
    """A template with its holes, ``@NAME@``, filled; a template has no hole that is not given."""
    text = (_TEMPLATES / f"{template}.in").read_text()
    return _HOLE.sub(lambda hole: holes[hole[1]], text)


def public_header(name: str, api: str) -> str:
    """``ts_library.h`` as the header of a library: its calls and macros under the library's name."""
    begin = api.index("*/") + 3
    text = re.sub(rf"\b{PUBLIC}(\w+)", rf"{name}_\1", api[begin:]).replace("TS_LIBRARY_", f"{name.upper()}_")
    text = text.replace(f'#include "{_TYPES}"', f'#include "tilesmith/{_TYPES}"')
    comment = api[:begin].replace(
        "`tilesmith embed --name deconv` writes a header of these calls as deconv_create and so on.",
        f"`tilesmith embed --name {name}` wrote this header; {name}.hpp has the same calls for C++.",
    )
    return re.sub(rf"\b{PUBLIC}(\w+)", rf"{name}_\1", comment) + text


@lru_cache(maxsize=1)
def _runtime_texts() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(_CSRC.glob("*.[ch]")) if path.name not in _LEFT_OUT}


def _signatures(library: Library) -> tuple[Signature, ...]:
    """The problems of all parts that have a plan, each once."""
    found: dict[str, Signature] = {}
    for part in library.parts:
        for problem in part.problems:
            if problem.plans:
                found.setdefault(problem.signature.canonical.key(), problem.signature)
    return tuple(found.values())


def _holes(library: Library, options: ProjectOptions) -> dict[str, str]:
    name = library.name
    libraries = {STATIC: f"lib/{name}.a", SHARED: f"lib/{name}.so"}
    left_out = [
        f'if(NOT "{pair_of(part)}" IN_LIST {name.upper()}_EMBED_DB)\n'
        f"  target_compile_definitions({name} PRIVATE {name.upper()}_WITHOUT_{identifier(pair_of(part))})\nendif()\n"
        for part in library.parts
    ]
    return {
        "NAME": name, "UPPER": name.upper(), "VERSION": library.version, "SOVERSION": SOVERSION,
        "MAJOR": library.version.partition(".")[0], "DEFAULT": " ".join(options.kinds),
        "MAKES": " and ".join(libraries[kind] for kind in options.kinds),
        "SHARED": "OFF" if STATIC in options.kinds else "ON", "SUFFIX": "a" if STATIC in options.kinds else "so",
        "LIBS": _LINKS, "DTYPES": "fp32", "FAST": " ".join(_FAST), "REFERENCE": _REFERENCE,
        "PAIRS": ";".join(pair_of(part) for part in library.parts), "LEFT_OUT": "".join(left_out),
        "COUNT": str(len(_signatures(library))), "TARGETS": ", ".join(part.target.name for part in library.parts),
        "TABLE": "\n".join(_table_row(library, index) for index in range(len(library.parts))),
    }  # fmt: skip


def _of_arch(each: ArchKernels) -> dict[str, str]:
    """The holes of an arch's rules in the build files."""
    return {
        "ARCH_PAIRS": " ".join(pair_of(part) for part in each.parts),
        "ARCH": each.arch, "ID": identifier(each.arch), "MACHINE": each.parts[0].machine,
        "FLAGS": " ".join(linked_flags(each.target)), "ZIG_FLAGS": " ".join(linked_flags(each.target, zig=True)),
    }  # fmt: skip


def _table_row(library: Library, index: int) -> str:
    part = library.parts[index]
    problems = sum(bool(problem.plans) for problem in part.problems)
    kernels = len(part.kernels) or len(part.package.of_kind(Kind.BINARY))
    return f"| `{part.target.name}` | {problems} | {kernels} |"
