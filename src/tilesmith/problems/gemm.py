"""``GemmSignature``: one matrix product, or a batch of them, as the user describes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from tilesmith.errors import ProblemError
from tilesmith.problems.base import Problem
from tilesmith.problems.dtypes import TF32, default_acc_dtype, refuse_tf32, sums_of
from tilesmith.problems.dtypes import acc_dtype as known_acc_dtype
from tilesmith.problems.dtypes import dtype as known_dtype
from tilesmith.problems.epilogue import IDENTITY, Epilogue
from tilesmith.problems.geometry import SCALE_BLOCKS, SCALE_K, GemmGeometry, MatrixView, OperandOrder
from tilesmith.problems.limits import MAX_SIZE, MAX_STRIDE, read_limit, refuse_empty, whole_number

OPERAND_SCALES = ("none", "tensor", *SCALE_BLOCKS)


@dataclass(frozen=True)
class GemmSignature(Problem, OperandOrder):
    """``c = activation(scale * (alpha * op(a) @ op(b)) + beta * c + bias + residual)`` for each of ``batch`` matrices.

    Immutable, and checked when it is made. ``op(a)`` is m x k, ``op(b)`` is k x n and ``c`` is m x n, all row-major.

    Args:
        m: Rows of ``op(a)`` and of ``c``.
        n: Columns of ``op(b)`` and of ``c``.
        k: Columns of ``op(a)`` and rows of ``op(b)``.
        batch: Number of products.
        trans_a: ``a`` is stored as k x m.
        trans_b: ``b`` is stored as n x k.
        dtype: Element type of all matrices: ``"fp64"``, ``"fp32"``, ``"fp16"``, ``"bf16"``, ``"fp8e4m3"``,
            ``"fp8e5m2"`` or ``"int8"``.
        a_dtype: Element type of ``a``. Default: ``dtype``.
        b_dtype: Element type of ``b``. Default: ``dtype``.
        c_dtype: Element type of ``c``. Default: ``dtype``; for int8 operands ``"int32"``, or ``"int8"`` if the epilogue
            has a scale.
        acc_dtype: Type of the sums. Default: ``"fp32"``; ``"fp64"`` if a matrix is fp64, ``"int32"`` for int8.
            ``"tf32"`` allows tensor cores to round fp32 operands to TF32.
        alpha: Factor of the product; finite, and a whole number for an int32 result.
        beta: Factor of the initial ``c``; same rule. With 0, ``c`` is not read.
        lda: Elements from one stored row of ``a`` to the next. None: dense.
        ldb: Elements from one stored row of ``b`` to the next. None: dense.
        ldc: Elements from one row of ``c`` to the next. None: dense.
        stride_a: Elements from one batch of ``a`` to the next. None: dense. 0: all batches share ``a``. The matrices of
            several batches may interleave.
        stride_b: Elements from one batch of ``b`` to the next. None: dense. 0: all batches share ``b``.
        stride_c: Elements from one batch of ``c`` to the next, from 1. None: dense.
        epilogue: Operations on the result before it is stored. The bias has one element for each column, the residual
            has the memory layout of ``c``. Default: none.
        deterministic: True to get the same bits at each call.
        workspace_limit: Largest workspace of a plan in bytes (``Plan.workspace_bytes``; packed filters do not count).
            None: no limit.
        groups: Number of groups of rows, each multiplied by a ``b`` of its own (experts of a mixture). 0: an ordinary
            product. ``b`` has a leading axis of ``groups`` then, and a third argument follows it: int32 ``group_ends``
            of shape ``(groups,)``, the row behind the last one of each group, in ascending order. Rows behind the last
            group are 0. An end below the one before it makes an empty group; ends below 0 count as 0, those above ``m``
            as ``m``. Such a product is of floating-point numbers, and has one batch, no ``trans_a``, ``alpha``,
            ``beta`` or epilogue.
        a_scale: Factors of fp8 operands ``a``: ``"none"``, ``"tensor"`` (one), ``"1x128"`` (one for 128 elements along
            k of each row) or ``"128x128"`` (one for 128 rows and 128 along k). They are an fp32 argument behind ``b``:
            of shape ``(1,)``; else of a's own axes, each divided as said and rounded up. Those of ``"1x128"`` lie with
            the rows contiguous, those of ``"128x128"`` with k. Such a product has one batch and no groups.
        b_scale: The same for ``b``, whose rows are the columns of ``op(b)``; the argument stands behind that of ``a``.
            Either no operand has factors, or each has one, or both have blocks.

    Raises:
        ProblemError: A value breaks a rule. The message names the value and the rule.

    Examples:
        >>> from tilesmith import GemmSignature
        >>> GemmSignature(m=4, n=3, k=8, trans_b=True).b_shape
        (3, 8)
    """

    m: int
    n: int
    k: int
    batch: int = 1
    trans_a: bool = False
    trans_b: bool = False
    dtype: str = "fp32"
    a_dtype: str = ""  # these default to ``dtype``; int8 operands give an int32 result
    b_dtype: str = ""
    c_dtype: str = ""
    acc_dtype: str = ""
    alpha: float = 1.0
    beta: float = 0.0
    lda: int | None = None
    ldb: int | None = None
    ldc: int | None = None
    stride_a: int | None = None
    stride_b: int | None = None
    stride_c: int | None = None
    epilogue: Epilogue = field(default=IDENTITY)
    deterministic: bool = False
    workspace_limit: int | None = None
    groups: int = 0
    a_scale: str = "none"
    b_scale: str = "none"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k", "batch", "groups"):
            self._put(name, whole_number(name, getattr(self, name), 0, MAX_SIZE))
        for name in ("trans_a", "trans_b", "deterministic"):
            if not isinstance(getattr(self, name), bool):
                raise ProblemError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if not isinstance(self.epilogue, Epilogue):
            raise ProblemError(f"epilogue must be an Epilogue, got {self.epilogue!r}")
        self._put("workspace_limit", read_limit(self.workspace_limit))
        self._resolve_dtypes()
        for name in ("alpha", "beta"):
            self._put(name, _factor(name, getattr(self, name), integer=self.acc_dtype == "int32"))
        if self.groups:
            self._check_groups()
        if (self.a_scale, self.b_scale) != ("none", "none"):
            self._check_scales()
        for name in "abc":
            self._resolve_memory(name)

    def _check_groups(self) -> None:
        plain = {"batch": 1, "trans_a": False, "alpha": 1.0, "beta": 0.0, "epilogue": IDENTITY}
        for name, wanted in plain.items():
            if getattr(self, name) != wanted:
                raise ProblemError(f"a product of {self.groups} groups has no {name}, got {getattr(self, name)!r}")
        if self.acc_dtype == "int32":
            raise ProblemError(f"a product of {self.groups} groups has floating-point operands, got {self.a_dtype}")

    def _check_scales(self) -> None:
        kinds = self.a_scale, self.b_scale
        for name, kind in zip(("a_scale", "b_scale"), kinds, strict=True):
            if not isinstance(kind, str) or kind not in OPERAND_SCALES:
                raise ProblemError(f"{name} {kind!r} does not exist; known: {', '.join(OPERAND_SCALES)}")
        if len({kind if kind not in SCALE_BLOCKS else "blocks" for kind in kinds}) > 1:
            raise ProblemError(f"a_scale and b_scale are both 'tensor' or both of blocks, got {' and '.join(kinds)}")
        for name in ("a_dtype", "b_dtype"):
            if not getattr(self, name).startswith("fp8"):
                raise ProblemError(f"scales go with fp8 operands, got {name} {getattr(self, name)!r}")
        for name, wanted in (("batch", 1), ("groups", 0)):
            if getattr(self, name) != wanted:
                raise ProblemError(f"a product of scaled operands has {name} {wanted}, got {getattr(self, name)}")

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _resolve_dtypes(self) -> None:
        base = known_dtype(self.dtype)
        a = known_dtype(self.a_dtype or base.name)
        b = known_dtype(self.b_dtype or base.name)
        whole = "int8" if self.epilogue.is_scaled else "int32"  # the result of int8 products
        c = known_dtype(self.c_dtype or (whole if a.name == "int8" else base.name))
        acc = known_acc_dtype(self.acc_dtype or default_acc_dtype(a.name, b.name, c.name))
        if any(d.is_integer for d in (a, b, c, acc)):
            if (a.name, b.name, c.name, acc.name) != ("int8", "int8", whole, "int32"):
                got = f"{a.name} x {b.name} -> {c.name}, accumulated in {acc.name}"
                with_scale = "with" if self.epilogue.is_scaled else "without"
                raise ProblemError(
                    f"{with_scale} a scale integers come as int8 x int8 -> {whole} accumulated in int32; got {got}"
                )
            if whole == "int32" and self.epilogue.activation not in ("none", "relu", "clamp"):
                raise ProblemError(f"activation {self.epilogue.activation!r} needs a floating-point result, got int32")
        elif acc is TF32:
            refuse_tf32((a.name, b.name, c.name))
        elif acc.name not in ("fp32", "fp64"):
            raise ProblemError(f"acc_dtype {acc.name!r}: floating-point problems accumulate in fp32, fp64 or tf32")
        elif acc.name == "fp32" and "fp64" in (a.name, b.name, c.name):
            raise ProblemError("acc_dtype 'fp32' is narrower than an fp64 tensor; use fp64")
        self.epilogue.refuse_result(c.name)
        for name, value in (("a_dtype", a), ("b_dtype", b), ("c_dtype", c), ("acc_dtype", acc), ("dtype", a)):
            self._put(name, value.name)

    def _resolve_memory(self, name: str) -> None:
        """Check the leading dimension and batch stride of one matrix; store None for a dense one."""
        rows, columns = self._stored(name)
        lead, step = getattr(self, f"ld{name}"), getattr(self, f"stride_{name}")
        if lead is not None:
            lead = whole_number(f"ld{name}", lead, 1, MAX_STRIDE)
            if lead < columns:
                raise ProblemError(f"ld{name} {lead} is smaller than a stored row of {columns} elements")
        self._put(f"ld{name}", None if lead == columns or rows == 1 else lead)
        if step is not None:
            self._put(f"stride_{name}", self._checked_step(name, step))
        elements = sum((n - 1) * s for n, s in zip(self._shape(name), self._strides(name), strict=True)) + 1
        if elements * 8 > MAX_STRIDE:
            raise ProblemError(f"{name} {self._shape(name)} spans {elements} elements; tensors end at 2^59")

    def _checked_step(self, name: str, step: int) -> int | None:
        """Check a batch stride. Returns None for the dense stride, and if there is only one batch."""
        rows, columns = self._stored(name)
        lead = self._lead(name)
        step = whole_number(f"stride_{name}", step, 1 if name == "c" else 0, MAX_STRIDE)
        apart = step >= (rows - 1) * lead + columns
        between = step >= columns and (self.batch - 1) * step + columns <= lead
        if name == "c" and self.batch > 1 and not (apart or between):
            raise ProblemError(f"stride_c {step} makes the {self.batch} results of {rows} x {columns} overlap")
        return None if self._count(name) == 1 or step == rows * lead else step

    def _count(self, name: str) -> int:
        """The number of matrices: groups have a ``b`` each, and share ``a`` and ``c``."""
        return self.groups if self.groups and name == "b" else self.batch

    def _stored(self, name: str) -> tuple[int, int]:
        """Rows and columns of one matrix as stored in memory."""
        return {
            "a": (self.k, self.m) if self.trans_a else (self.m, self.k),
            "b": (self.n, self.k) if self.trans_b else (self.k, self.n),
            "c": (self.m, self.n),
        }[name]

    def _lead(self, name: str) -> int:
        lead: int | None = getattr(self, f"ld{name}")
        return self._stored(name)[1] if lead is None else lead

    def _step(self, name: str) -> int:
        step: int | None = getattr(self, f"stride_{name}")
        return self._stored(name)[0] * self._lead(name) if step is None else step

    # --- the user's arrays ----------------------------------------------------------------------------------------

    def _shape(self, name: str) -> tuple[int, ...]:
        return (self._count(name), *self._stored(name)) if self._has_batches(name) else self._stored(name)

    def _strides(self, name: str) -> tuple[int, ...]:
        return (self._step(name), self._lead(name), 1) if self._has_batches(name) else (self._lead(name), 1)

    def _has_batches(self, name: str) -> bool:
        return self.batch != 1 or (self.groups > 0 and name == "b")

    @property
    def a_shape(self) -> tuple[int, ...]:
        """``([batch,] m, k)``, or ``([batch,] k, m)`` with ``trans_a``; no batch axis if ``batch`` is 1."""
        return self._shape("a")

    @property
    def b_shape(self) -> tuple[int, ...]:
        return self._shape("b")

    @property
    def c_shape(self) -> tuple[int, ...]:
        return self._shape("c")

    @property
    def a_strides(self) -> tuple[int, ...]:
        """Element strides of an array of ``a_shape``."""
        return self._strides("a")

    @property
    def b_strides(self) -> tuple[int, ...]:
        return self._strides("b")

    @property
    def c_strides(self) -> tuple[int, ...]:
        return self._strides("c")

    def scale_layout(self, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and element strides of the factors of ``a`` or ``b``."""
        kind = getattr(self, f"{name}_scale")
        if kind == "tensor":
            return (1,), (1,)
        by_k = self.trans_a if name == "a" else not self.trans_b  # k is the first axis
        of_rows, of_k = -(-(self.m if name == "a" else self.n) // SCALE_BLOCKS[kind]), -(-self.k // SCALE_K)
        steps = (1, of_rows) if kind == "1x128" else (of_k, 1)
        return ((of_k, of_rows), steps[::-1]) if by_k else ((of_rows, of_k), steps)

    @property
    def is_empty(self) -> bool:
        """True if an operand has no elements: the result is empty or zero plus epilogue, and no kernel computes it."""
        return 0 in (self.batch, self.m, self.n, self.k)

    # --- canonical form -------------------------------------------------------------------------------------------

    @cached_property
    def canonical(self) -> GemmSignature:
        """The canonical form: ``trans_a`` and ``trans_b`` are False where they change no address."""
        if self.is_empty:
            return self
        changes: dict[str, object] = {}
        # If k or m is 1, a dense k x m matrix has the memory of an m x k matrix. With a pitch that holds for k == 1
        # only.
        if self.trans_a and (self.k == 1 or (self.m == 1 and self.lda is None)):
            changes |= {"trans_a": False, "lda": None, "stride_a": self._step("a")}
        if self.trans_b and (self.n == 1 or (self.k == 1 and self.ldb is None)):
            changes |= {"trans_b": False, "ldb": None, "stride_b": self._step("b")}
        return replace(self, **changes) if changes else self  # type: ignore[arg-type]

    @property
    def canonical_order(self) -> tuple[int, ...]:
        """For each input argument of ``canonical``, the index of the same argument here: the order never changes."""
        e = self.epilogue
        return tuple(range(self.first_extra + e.bias + e.residual + e.is_scaled + (self.beta != 0)))

    @cached_property
    def geometry(self) -> GemmGeometry:
        """The canonical problem as plain numbers, for solvers."""
        refuse_empty(self)
        sig = self.canonical

        def view(name: str, rows: int, columns: int, transposed: bool) -> MatrixView:
            lead, step = sig._lead(name), sig._step(name)
            steps = (1, lead) if transposed else (lead, 1)
            return MatrixView(name, getattr(sig, f"{name}_dtype"), sig._count(name), rows, columns, (step, *steps))

        return GemmGeometry(
            batch=sig.batch, m=sig.m, n=sig.n, k=sig.k,
            a=view("a", sig.m, sig.k, sig.trans_a),
            b=view("b", sig.k, sig.n, sig.trans_b),
            c=view("c", sig.m, sig.n, False),
            alpha=sig.alpha, beta=sig.beta, **sums_of(sig.acc_dtype),
            epilogue=sig.epilogue, deterministic=sig.deterministic, groups=sig.groups,
            a_scale=sig.a_scale, b_scale=sig.b_scale,
        )  # fmt: skip

    # --- text and arguments ---------------------------------------------------------------------------------------

    @cached_property
    def _key(self) -> str:
        from tilesmith.problems.key_text import gemm_key

        return gemm_key(self)

    @staticmethod
    def parse(text: str) -> GemmSignature:
        """The canonical signature whose ``key()`` is ``text``; ``ProblemError`` if there is none."""
        from tilesmith.problems.keys import parse_gemm_key

        return parse_gemm_key(text)

    def get_func_name(self) -> str:
        """A readable C identifier that no other signature has."""
        from tilesmith.problems.func_name import gemm_func_name

        return gemm_func_name(self)


def _factor(name: str, value: object, integer: bool) -> float:
    """``alpha`` or ``beta`` as a finite float; whole numbers for integer results."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise ProblemError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except (OverflowError, ValueError):
        number = math.inf
    except TypeError:  # an array of several numbers
        raise ProblemError(f"{name} must be a number, got {value!r}") from None
    if not math.isfinite(number):
        raise ProblemError(f"{name} must be finite, got {value!r}")
    if integer and (number != int(number) or abs(number) > MAX_SIZE):
        raise ProblemError(f"{name} must be a whole number below 2^31 for an int32 result, got {value!r}")
    return number + 0.0  # -0.0 becomes 0.0
