"""Which kernels of CUTLASS's library compute a GEMM on a target."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilesmith.compare.cutlass.checkout import Checkout
from tilesmith.compare.places import keep, kept_path, read_kept
from tilesmith.errors import CompileError, shortened
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import MatrixView
from tilesmith.targets.target import CudaTarget

_LISTING_S = 120.0
_VECTOR = 16  # bytes of the widest access
# What the generator calls the types of a, b, the result and the sums, by the problem's: for each generation of kernels
# its opcode class. Kernels that round fp32 operands in their loops are slower twins of those listed for TF32.
_KINDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "fp32": (("SM50", "Simt", "f32", "f32", "f32", "f32"), ("SM80", "Simt", "f32", "f32", "f32", "f32")),
    "tf32": (("SM80", "TensorOp", "tf32", "tf32", "f32", "f32"), ("SM90", "TensorOp", "f32", "f32", "f32", "f32")),
    "bf16": (("SM80", "TensorOp", "bf16", "bf16", "bf16", "f32"), ("SM90", "TensorOp", "bf16", "bf16", "bf16", "f32")),
    "fp16": (("SM80", "TensorOp", "f16", "f16", "f16", "f32"), ("SM90", "TensorOp", "f16", "f16", "f16", "f32")),
}


@dataclass(frozen=True)
class Operand:
    """One operand as CUTLASS has it: ``layout`` ``n`` (column-major) or ``t``, its leading dimension and batch stride
    in elements, and the elements that every access may take together."""

    layout: str
    lead: int
    batch: int
    alignment: int


@dataclass(frozen=True)
class Product:
    """``c^T = b^T a^T``, column-major: CUTLASS's ``a`` is the problem's ``b``."""

    m: int
    n: int
    k: int
    count: int
    a: Operand
    b: Operand
    c: Operand
    kind: str
    alpha: float


@dataclass(frozen=True)
class CutlassKernel:
    """One kernel of the library.

    Args:
        name: Its name in the library, without ``cutlass_``.
        tile: Of a block, m x n x k.
        splits: Whether k can be split among blocks.
        text: Its definition in C++.
    """

    name: str
    tile: tuple[int, int, int]
    splits: bool
    text: str


def product_of(signature: GemmSignature) -> Product | None:
    """The problem in CUTLASS's terms; None for one that its library has no kernels for: an epilogue, ``beta``, groups
    of rows, other element types, or a result whose rows are not contiguous."""
    g = signature.geometry
    kind = "tf32" if g.tf32 else g.a.dtype
    types = {g.a.dtype, g.b.dtype, g.c.dtype}
    plain = g.beta == 0 and g.epilogue.is_identity and not g.groups
    if not plain or len(types) > 1 or kind not in _KINDS or g.acc_dtype != "fp32":
        return None
    a, b, c = _operand(g.b), _operand(g.a), _operand(g.c)
    if a is None or b is None or c is None or c.layout != "n":
        return None
    return Product(g.n, g.m, g.k, g.batch, a, b, c, kind, g.alpha)


def _operand(matrix: MatrixView) -> Operand | None:
    """The transpose of a row-major matrix is a column-major one in the same memory."""
    batch, row, column = matrix.strides
    if column == 1 or matrix.columns == 1:
        layout, lead, inner = "n", row, matrix.columns
    elif row == 1 or matrix.rows == 1:
        layout, lead, inner = "t", column, matrix.rows
    else:
        return None
    widest = _VECTOR // (4 if matrix.dtype == "fp32" else 2)
    alignment = math.gcd(widest, lead, inner, batch if matrix.batch > 1 else 0)
    return Operand(layout, max(lead, inner), batch if matrix.batch > 1 else 0, alignment)


def kernels_for(product: Product, target: CudaTarget, checkout: Checkout, cuda: str) -> tuple[CutlassKernel, ...]:
    """The kernels that CUTLASS's generator lists for the product.

    Args:
        product: The product.
        target: The device.
        checkout: The version of CUTLASS.
        cuda: The version of the CUDA compiler.

    Raises:
        CompileError: The generator fails.
    """
    arch = target.arch.removeprefix("sm_")
    number = int(arch.rstrip("af"))
    # Kernels for Hopper's tensor cores run on no other generation.
    kinds = [
        kind for kind in _KINDS[product.kind] if int(kind[0][2:]) <= number and (kind[0] != "SM90" or arch == "90a")
    ]
    asked = {
        "python": str(checkout.python), "arch": arch, "cuda": cuda, "kinds": kinds,
        "layouts": product.a.layout + product.b.layout,
        "alignments": [product.a.alignment, product.b.alignment, product.c.alignment],
    }  # fmt: skip
    # What the generator says takes seconds, and stays the same while its program does.
    program = (checkout.python / "cutlass_library" / "generator.py").stat()
    return _listed(json.dumps(asked, sort_keys=True), f"{checkout.version} {program.st_mtime_ns} {program.st_size}")


@lru_cache(maxsize=64)
def _listed(asked: str, stamp: str) -> tuple[CutlassKernel, ...]:
    path = kept_path("cutlass", "listing", asked, stamp)
    rows = read_kept(path)
    if not isinstance(rows, list):
        rows = _told(asked)
        keep(path, rows)
    return tuple(CutlassKernel(row["name"], tuple(row["tile"]), row["splits"], row["text"]) for row in rows)


def _told(asked: str) -> list[dict[str, Any]]:
    """Asks the generator for its list of kernels."""
    try:
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("listing.py")], input=asked, capture_output=True, text=True,
            timeout=_LISTING_S, check=True,
        )  # fmt: skip
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found
    except subprocess.CalledProcessError as error:
        raise CompileError(
            f"CUTLASS's generator fails: {shortened(error.stderr.strip().rpartition(chr(10))[2])}"
        ) from None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise CompileError(f"CUTLASS's generator fails: {error}") from None


def splits_of(kernel: CutlassKernel, product: Product, cores: int) -> tuple[int, ...]:
    """Into how many parts k is worth splitting: while there are fewer blocks than the device holds at a time, and each
    part is a few tiles long."""
    found, (m, n, k) = [1], kernel.tile
    blocks = -(-product.m // m) * -(-product.n // n) * product.count
    if kernel.splits and product.count == 1:
        found += [
            parts for parts in (2, 3, 4, 6, 8, 12, 16) if blocks * parts <= 4 * cores and product.k >= 4 * k * parts
        ]
    return tuple(found)
