"""Equivalences: other problems with the same result on the same memory.

A rewrite moves no data: every tensor of the rewritten problem is a view of the tensor in the same slot (slot ``i`` of
the one is slot ``i`` of the other). So each solver sees each form of a problem, and no kernel is written twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.limits import MAX_SIZE
from tilesmith.problems.linear import Axis, conv_as_gemm, merge_axes
from tilesmith.problems.rewrite_conv import flatten_conv, widen_conv

Signature = ConvSignature | GemmSignature
FORMS = ("", "flat", "gemm", "wide")  # the names of all forms, in the order of ``rewrites``


@dataclass(frozen=True)
class Rewrite:
    """One form of a problem. ``name`` is stored in databases (``solver@name``): written once, never renamed."""

    name: str
    signature: Signature


def rewrites(signature: Signature) -> tuple[Rewrite, ...]:
    """All forms of ``signature``, canonical, the problem itself first (its name is empty).

    - ``flat``: unit spatial axes dropped, an unmixed depth folded into the batch; GEMMs that share ``b`` as one.
    - ``gemm``: a convolution that is a matrix multiplication as its tensors lie.
    - ``wide``: pixels that lie side by side are one pixel of more channels, where stride, filter and padding are
      multiples of so many.
    """
    original = signature.canonical
    found: list[Rewrite] = [Rewrite("", original)]
    flat: Signature | None
    gemm: Signature | None = None
    wide: Signature | None = None
    if isinstance(original, GemmSignature):
        flat = _flatten_gemm(original)
    else:
        flat = flatten_conv(original)
        gemm = conv_as_gemm(original.geometry)
        wide = None if gemm else widen_conv(original if flat is None else flat)
    for name, form in zip(FORMS[1:], (flat, gemm, wide), strict=True):
        # Two spellings with the same numbers would only measure the same kernels twice.
        if form is not None and form.geometry not in [rewrite.signature.geometry for rewrite in found]:
            found.append(Rewrite(name, form.canonical))
    return tuple(found)


def _flatten_gemm(sig: GemmSignature) -> GemmSignature | None:
    """Fold the batch into the rows when all batches share ``b``."""
    if sig.batch == 1 or sig.stride_b != 0 or sig.batch * sig.m > MAX_SIZE:
        return None
    a, c = sig.geometry.a.strides, sig.geometry.c.strides
    rows = merge_axes([Axis(sig.batch, a[0], c[0]), Axis(sig.m, a[1], c[1])])
    if len(rows) != 1 or a[2] != 1 or rows[0].first < sig.k or rows[0].second < sig.n:
        return None
    return replace(
        sig, m=rows[0].size, batch=1, trans_a=False, lda=rows[0].first, ldc=rows[0].second,
        stride_a=None, stride_b=None, stride_c=None,
    )  # fmt: skip
