"""Lists kernels of CUTLASS's own generator: a program that runs in a process of its own.

``python listing.py`` reads what is asked from stdin and writes a JSON list to stdout. It imports CUTLASS's package and
the standard library alone: the generator changes ``builtins`` and logging, which no other code must meet.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

GENERATIONS = {"SM50": 50, "SM80": 80, "SM90": 90}


def kernels(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The kernels that compute what is asked.

    Args:
        asked: ``arch`` (such as ``90a``), ``cuda`` (such as ``13.0``), ``layouts`` (of a and b, such as ``nt``),
            ``alignments`` (of a, b and c, in elements), ``kinds``: lists of generation, opcode class, and the element
            types of a, b, the result and the sums.
    """
    library = importlib.import_module("cutlass_library.library")
    found = []
    for generation, opcode, *types in asked["kinds"]:
        operations = [
            each for each in _operations(asked, generation)
            if _is_asked(library, each, asked, opcode, types) and _fits(each, asked["alignments"])
        ]  # fmt: skip
        widest = max(((each.A.alignment, each.B.alignment) for each in operations), default=None)
        names = {each.procedural_name() for each in operations}
        for each in operations:
            if (each.A.alignment, each.B.alignment) == widest and not _has_twin(library, each, names):
                found.append(_described(library, each))
    return found


def _operations(asked: dict[str, Any], generation: str) -> Iterator[Any]:
    generator = importlib.import_module("cutlass_library.generator")
    manifest = importlib.import_module("cutlass_library.manifest")
    words = ["--operations=gemm", f"--architectures={asked['arch']}", "--kernels=*", "--log-level=ERROR"]
    held = manifest.Manifest(generator.define_parser().parse_args(words))
    getattr(generator, f"Generate{generation}")(held, f"{asked['cuda']}.0")
    for kind in held.operations.values():
        for configurations in kind.values():
            for operations in configurations.values():
                yield from operations


def _is_asked(library: Any, each: Any, asked: dict[str, Any], opcode: str, types: list[str]) -> bool:
    kinds = (library.GemmKind.Universal, library.GemmKind.Universal3x)
    math = each.tile_description.math_instruction
    result = each.D if each.gemm_kind == library.GemmKind.Universal3x else each.C
    names = [library.DataTypeNames[type_] for type_ in (each.A.element, each.B.element, result.element)]
    return bool(
        each.gemm_kind in kinds
        and math.opcode_class.name == opcode
        and math.math_operation.name == "multiply_add"
        and [*names, library.DataTypeNames[each.accumulator_type()]] == types
        and library.DataTypeNames[each.C.element] in (types[2], "void")
        and each.layout_name()[:2] == asked["layouts"]
        and each.C.layout == library.LayoutType.ColumnMajor
        and each.A.complex_transform == each.B.complex_transform == library.ComplexTransform.none
    )


def _fits(each: Any, alignments: list[int]) -> bool:
    return all(side.alignment <= most for side, most in zip((each.A, each.B, each.C), alignments, strict=True))


def _has_twin(library: Any, each: Any, names: set[str]) -> bool:
    """Whether the same kernel is listed without a matrix that is added, which nothing here needs."""
    if each.gemm_kind != library.GemmKind.Universal3x or library.DataTypeNames[each.C.element] == "void":
        return False
    kept, added = library.DataTypeNames[each.D.element], library.DataTypeNames[each.C.element]
    before, _, after = each.procedural_name().rpartition(f"_{added}_{kept}_")
    return f"{before}_void_{kept}_{after}" in names


def _described(library: Any, each: Any) -> dict[str, Any]:
    emitters = importlib.import_module("cutlass_library.gemm_operation")
    third = each.gemm_kind == library.GemmKind.Universal3x
    emitter = emitters.EmitGemmUniversal3xInstance() if third else emitters.EmitGemmUniversalInstance()
    name = each.procedural_name()
    includes = "".join(f'#include "{file}"\n' for file in emitter.includes)
    tile = each.tile_description.tile_shape if third else each.tile_description.threadblock_shape
    return {
        "name": re.sub(r"^cutlass(3x)?_", "", name),
        "tile": list(tile),
        "splits": not third or each.tile_scheduler == library.TileSchedulerType.StreamK,
        "text": f"{includes}{emitter.emit(each)}\n#define TILESMITH_KERNEL {name}\n"
        f"#define TILESMITH_CUTLASS3 {int(third)}\n",
    }


if __name__ == "__main__":
    given = json.load(sys.stdin)
    sys.path.insert(0, given["python"])
    sys.argv = sys.argv[:1]  # the generator reads them when it is imported
    json.dump(kernels(given), sys.stdout)
