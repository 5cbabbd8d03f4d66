"""The sample and the self-test of a library: real problems, described in C."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.package.embed.arrays import text_literal
from tilesmith.package.embed.description import assignments
from tilesmith.plan.records import Slot
from tilesmith.plan.slots import arguments
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver import command_or_key
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature

_OPERANDS = ("x", "w", "y", "bias", "residual", "scale")  # of ts_operands, in its order
_FIELDS = {"dx": "x", "dw": "w", "dy": "y", "db": "bias", "a": "x", "b": "w", "c": "y"}


def operand_of(slot: Slot, signature: Signature) -> str:
    """The field of ``ts_operands`` for a tensor of the signature."""
    if isinstance(signature, GemmSignature) or slot.name not in _OPERANDS:
        return _FIELDS.get(slot.name, slot.name)
    return slot.name


def problems_header(signatures: Sequence[Signature]) -> str:
    """The self-test's table: each problem with what describes it, and the type and size of each tensor."""
    functions, rows = [], []
    for number, signature in enumerate(signatures):
        body = assignments(signature, "desc->")
        functions.append(f"static void describe_{number}(ts_desc *desc) {{\n{body}}}\n")
        slots = {operand_of(slot, signature): slot for slot in arguments(signature)}
        operands = ", ".join(_operand(slots.get(name)) for name in _OPERANDS)
        result = next(_OPERANDS.index(name) for name, slot in slots.items() if slot.is_output)
        terms = _terms(signature)
        products = terms * slots[_OPERANDS[result]].nbytes / dtype(slots[_OPERANDS[result]].dtype).nbytes
        name = text_literal(command_or_key(signature))
        rows.append(f"    {{describe_{number}, {name}, {products:.6g}, {terms:.6g}, {result}, {{{operands}}}}},\n")
    table = "".join(rows)
    return (
        "/* The problems of the self-test. Generated. */\n"
        f"{''.join(functions)}\nstatic const problem problems[] = {{\n{table}}};\n"
    )


def sample_parts(signature: Signature) -> dict[str, str]:
    """The values for the holes of the sample's template."""
    slots = {operand_of(slot, signature): slot for slot in arguments(signature)}
    lines = []
    for name, slot in slots.items():
        lines.append(f"  operands.{name} = memory({slot.nbytes}, 64);\n")
        if slot.dtype == "fp32" and (not slot.is_output or _reads_result(signature)):
            values = f"((float *)operands.{name})[i] = (float)(i * 7 % 17) / 8 - 1;"
            lines.append(f"  for (int64_t i = 0; i < {slot.nbytes // 4}; i++) {values}\n")
    result = next(name for name, slot in slots.items() if slot.is_output)
    return {
        "COMMENT": command_or_key(signature).replace("*/", "* /"),
        "ASSIGNMENTS": assignments(signature),
        "OPERANDS": "".join(lines),
        "RESULT": result,
        "RESULT_BYTES": str(slots[result].nbytes),
    }


def _operand(slot: Slot | None) -> str:
    if slot is None:
        return "{0, 0}"
    return f"{{TS_{slot.dtype.upper()}, {slot.nbytes // dtype(slot.dtype).nbytes}}}"


def _terms(signature: Signature) -> float:
    """The products of each sum."""
    if signature.is_empty:
        return 1.0
    return float(signature.k if isinstance(signature, GemmSignature) else signature.geometry.reduction_length)


def _reads_result(signature: Signature) -> bool:
    return not isinstance(signature, ConvSignature) and signature.beta != 0
