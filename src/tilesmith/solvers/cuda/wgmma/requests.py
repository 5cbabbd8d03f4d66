"""What the bulk tensor copies of an operand's rows cost, by where in memory the rows begin."""

from __future__ import annotations

from tilesmith.solvers.cuda.common.form import Sm90Form, Tiled, Window

LINE = 128  # bytes
# A row of 128 bytes that begins inside a sector of 32 is read as two: what its copy costs over that of one that is not.
# By columns, to begin inside a line of 128 is enough. From 22 products on an H100 (gpu_clusters_h100.jsonl);
# convolutions were measured on an H200.
_SECTOR, _ALONG_K, _BY_COLUMNS, _OF_CONVOLUTIONS = 32, 2.3, 2.75, 2.0


def request_costs(form: Sm90Form) -> tuple[float, float]:
    """The costs of copies of rows of 128 bytes of both operands, over those of rows that begin at lines."""
    return _request(form, form.a, form.a_columns), _request(form, form.b, form.b_columns)


def _request(form: Sm90Form, operand: Tiled | Window, by_columns: bool) -> float:
    if isinstance(operand, Window):
        return 1.0
    gemm = form.kind == "gemm"
    whole = LINE if gemm and by_columns else _SECTOR
    steps = zip(operand.dims[1:], operand.strides, strict=True)
    if not any(size > 1 and form.nbytes * stride % whole for size, stride in steps):
        return 1.0
    return (_BY_COLUMNS if by_columns else _ALONG_K) if gemm else _OF_CONVOLUTIONS
