"""GEMM commands: flag values to a signature."""

from __future__ import annotations

from tilesmith.errors import CommandError, ProblemError
from tilesmith.problems.driver.command import Direction
from tilesmith.problems.driver.conv_problem import workspace_limit
from tilesmith.problems.driver.flags import ACC_TYPES, CAST_TYPES, GEMM_BASES, GEMM_FLAGS, Value
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import parse_epilogue

_FLAGS = {flag.long: flag for flag in GEMM_FLAGS}
_ROW_MAJOR_ONLY = [
    f.long for f in GEMM_FLAGS if f.own and f.long not in ("acc_type", "deterministic", "workspace_limit")
]


def gemm_directions(base: str, values: dict[str, Value]) -> tuple[Direction, ...]:
    """The one problem of a GEMM command.

    Column-major matrices are their transposes in row-major order, so ``c = a b`` becomes ``c^T = b^T a^T``: the
    signature's ``a`` is the command's ``b``, and its ``m`` the command's ``n``.
    """
    if values["isColMajor"]:
        for name in _ROW_MAJOR_ONLY:
            if values[name] != _FLAGS[name].default:
                raise CommandError(f"{base}: flag {_FLAGS[name]} goes with --isColMajor 0")
        swapped = {"a_h": "b_w", "b_w": "a_h", "transA": "transB", "transB": "transA"}
        values = values | {name: values[other] for name, other in swapped.items()}
    try:
        return (("fwd", _signature(base, values)),)
    except ProblemError as error:
        raise CommandError(f"{base}: {error}") from None


def _signature(base: str, values: dict[str, Value]) -> GemmSignature:
    def optional(name: str, dense: int) -> int | None:
        return None if values[name] == dense else int(values[name])

    return GemmSignature(
        m=int(values["a_h"]), n=int(values["b_w"]), k=int(values["a_w"]), batch=int(values["batch_count"]),
        trans_a=values["transA"] == 1, trans_b=values["transB"] == 1, dtype=GEMM_BASES[base],
        b_dtype=_type(base, values, "b_type"), c_dtype=_type(base, values, "c_type"),
        acc_dtype=_type(base, values, "acc_type"), alpha=float(values["alpha"]), beta=float(values["beta"]),
        lda=optional("lda", 0), ldb=optional("ldb", 0), ldc=optional("ldc", 0),
        stride_a=optional("stride_a", -1), stride_b=optional("stride_b", -1), stride_c=optional("stride_c", -1),
        epilogue=parse_epilogue(str(values["epilogue"])), deterministic=values["deterministic"] == 1,
        workspace_limit=workspace_limit(values),
    )  # fmt: skip


def _type(base: str, values: dict[str, Value], flag: str) -> str:
    text = str(values[flag])
    known = ACC_TYPES if flag == "acc_type" else CAST_TYPES
    if text and text not in known:
        raise CommandError(f"{base}: flag {_FLAGS[flag]} {text!r} is none of {', '.join(known)}")
    return known.get(text, "")
