"""Planted wrong kernels: C text with one fault, compiled and run through the whole chain. Every one must be caught."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from chain import TWO_THREADS as TARGET
from chain import executables, function
from tilesmith.measure.accuracy import check_specials, verify
from tilesmith.plan.records import Draft
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.c.common.relayout import CPU_COPIES
from tilesmith.solvers.c.reference.solver import ReferenceSolver
from tilesmith.solvers.relayout import Relayout

FWD = ConvSignature((2, 9, 11, 7), (20, 9, 3, 3), padding=1, stride=2, epilogue=Epilogue(bias=True, activation="relu"))
BWD = ConvSignature((2, 9, 11, 7), (20, 9, 3, 3), padding=1, stride=2, mode="bwd")
EDGES = ConvSignature((2, 9, 11, 7), (20, 9, 3, 3), mode="bwd")  # its edges meet fewer taps
WRW = ConvSignature((2, 9, 11, 7), (20, 9, 3, 3), padding=1, stride=2, mode="wrw")
GEMM = GemmSignature(m=1000, n=1024, k=8)
BF16 = ConvSignature((1, 64, 5, 5), (32, 64, 3, 3), dtype="bf16")
PITCHED = ConvSignature((2, 4, 9, 8), (6, 4, 3, 3), padding=1, output_strides=(700, 110, 10, 1))

# Name: problem, text in the kernel, what stands there instead.
MUTANTS = {
    "off by one at the edge": (FWD, "return i >= 0 && i < size ? i : -1;", "return i > 0 && i < size ? i : -1;"),
    "wrong predicate": (WRW, "(iw >= 0) & (iw < g->iw)", "(iw >= 0) & (iw <= g->iw)"),
    "missed tail of the reduction": (FWD, "if (q == 64) {", "if (q >= 62) {\n q = q > 62 ? 64 : q;"),
    "last row never written": (BWD, "left < 32 ? left : 32", "left < 32 ? left - 1 : 32"),
    "last channel never written": (FWD, "g->on - n0 < 16 ? g->on - n0 : 16;", "g->on - n0 < 16 ? g->on - n0 - 1 : 16;"),
    "stale scratch": (FWD, "      c[i] = 0;", "      c[i] *= 1;"),
    "swapped axes of the filter": (FWD, "h * g->w3 + t * g->w4", "h * g->w4 + t * g->w3"),
    "phases mixed up": (BWD, "fw0 + at % cw * g->ew", "fw0 + at % cw"),
    "dropped bias": (FWD, "v += SYM_load_fp32(bias, channel);", ""),
    "bias of the neighbour": (FWD, "SYM_load_fp32(bias, channel);", "SYM_load_fp32(bias, channel ? channel - 1 : 0);"),
    "one wrong element in a million": (
        GEMM, "double v = c[m * 16 + n];", "double v = c[m * 16 + n] + (at == 777777) * 1e-4;",
    ),
    "writes behind the result": (
        GEMM, "SYM_store_fp32(result, at, v);",
        "SYM_store_fp32(result, at, v), SYM_store_fp32(result, at < 1023999 ? at : at + 9, v);",
    ),
    "writes into a gap": (
        PITCHED, "SYM_store_fp32(result, at, v);",
        "SYM_store_fp32(result, at, v), SYM_store_fp32(result, out[m] + 8 - pw[m], 0);",
    ),
    "reads behind a row": (PITCHED, "return i >= 0 && i < size ? i : -1;", "return i >= 0 && i <= size ? i : -1;"),
    "writes to an operand": (FWD, "int64_t q = 0;", "int64_t q = 0;\n((float *)src)[3] += 1;"),
    "sums in fp32 what it rounds to bf16 first": (
        BF16, "SYM_multiply(c, a, b, rows, q);\n              q = 0;",
        "SYM_multiply(c, a, b, rows, q);\nfor (q = 512; q; q--) c[q - 1] = SYM_widen_bf16(SYM_narrow_bf16(c[q - 1]));",
    ),
}  # fmt: skip

# Right for finite numbers; only NaN and Inf show them.
SPECIAL_MUTANTS = {
    "zero products that do not exist": (EDGES, "  if (!wild) {", "  if (1) {"),
    "relu swallows NaN": (FWD, "return x < 0.0 ? 0.0 : x;", "return x > 0.0 ? x : 0.0;"),
}  # fmt: skip


def mutant(signature, old, new):
    """The reference with ``old`` in its text replaced; ``SYM`` stands for the kernel's symbol."""
    geometry = signature.geometry
    solver = ReferenceSolver()
    draft = solver.draft(geometry, solver.default_config(geometry, TARGET), TARGET)
    [source] = draft.sources
    old, new = (text.replace("SYM", source.symbol) for text in (old, new))
    assert old in source.text, f"the reference no longer holds {old!r}"
    symbol = source.symbol[:-12] + hashlib.sha256((old + new).encode()).hexdigest()[:12]
    text = source.text.replace(old, new).replace(source.symbol, symbol)
    return Draft((replace(source, symbol=symbol, text=text),), (replace(draft.run[0], symbol=symbol),))


@pytest.mark.parametrize("fault", MUTANTS)
def test_a_wrong_kernel_is_caught(fault):
    signature, old, new = MUTANTS[fault]
    [built] = executables([(signature, mutant(signature, old, new))])
    verdict = verify(function(built, signature), signature)
    assert not verdict.ok
    assert verdict.message


@pytest.mark.parametrize("fault", SPECIAL_MUTANTS)
def test_a_kernel_wrong_for_special_numbers_is_caught(fault):
    signature, old, new = SPECIAL_MUTANTS[fault]
    [built] = executables([(signature, mutant(signature, old, new))])
    call = function(built, signature)
    assert verify(call, signature).ok
    assert not check_specials(call, signature).ok


def test_a_stale_workspace_is_caught():
    """A plan that forgets to copy its operand into the workspace."""

    class Picky(ReferenceSolver):
        name = "picky"

    signature = ConvSignature((2, 9, 11, 7), (20, 9, 3, 3), padding=1)
    draft = Relayout(Picky(), CPU_COPIES).draft(
        signature.geometry, Picky().default_config(signature.geometry, TARGET), TARGET
    )
    whole, forgetful = executables([(signature, draft), (signature, replace(draft, run=draft.run[1:]))])
    assert verify(function(whole, signature), signature).ok
    assert not verify(function(forgetful, signature), signature).ok


@pytest.mark.parametrize("signature", [FWD, BWD, WRW, GEMM, PITCHED], ids=["fwd", "bwd", "wrw", "gemm", "pitched"])
def test_the_right_kernel_passes_on_many_seeds(signature):
    geometry = signature.geometry
    draft = ReferenceSolver().draft(geometry, ReferenceSolver().default_config(geometry, TARGET), TARGET)
    [built] = executables([(signature, draft)])
    call = function(built, signature)
    for seed in range(3 if signature is GEMM else 15):
        assert verify(call, signature, seed).ok
        if signature is not GEMM:
            assert check_specials(call, signature, seed).ok
