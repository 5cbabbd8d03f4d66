"""``ConvSignature``: one convolution problem as a user asks for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tilesmith.errors import ProblemError
from tilesmith.problems.dtypes import default_acc_dtype
from tilesmith.problems.dtypes import dtype as known_dtype
from tilesmith.problems.epilogue import IDENTITY, Epilogue
from tilesmith.problems.geometry import ConvGeometry, TensorView, Triple
from tilesmith.problems.layouts import Layout, default_layout, dense_strides, parse_layout

MODES = ("fwd", "bwd", "wrw", "bgrad")
MAX_SIZE = 2**31 - 1


@dataclass(frozen=True)
class ConvSignature:
    """One convolution, transposed convolution, or a gradient of one.

    Shapes are those of the *forward* problem, each in its tensor's own layout. The filter's layout uses the same
    letters: ``N`` is its first logical axis (output channels ``K``; input channels ``C`` when ``transposed``), ``C`` its
    second (``C / groups``; ``K / groups`` when ``transposed``).

    Modes: ``fwd`` y from (x, w); ``bwd`` dx from (dy, w); ``wrw`` dw from (dy, x); ``bgrad`` db from (dy).
    ``stride``, ``padding``, ``dilation``, ``output_padding`` are integers or one value a spatial axis.
    ``*_strides`` are element strides in the order of the layout's axes (None: dense), for tensors with a pitch.
    Output size: ``(in + 2*padding - dilation*(filter - 1) - 1) // stride + 1``; transposed:
    ``(in - 1)*stride - 2*padding + dilation*(filter - 1) + 1 + output_padding``.

    Raises ``ProblemError`` for anything that breaks a rule.
    """

    input_shape: tuple[int, ...]
    kernel_shape: tuple[int, ...]
    stride: tuple[int, ...] = 1  # type: ignore[assignment]  # normalised in __post_init__
    padding: tuple[int, ...] = 0  # type: ignore[assignment]
    dilation: tuple[int, ...] = 1  # type: ignore[assignment]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = 0  # type: ignore[assignment]
    mode: str = "fwd"
    dtype: str = "fp32"
    input_dtype: str = ""  # the three default to ``dtype``; int8 inputs give an int32 output
    kernel_dtype: str = ""
    output_dtype: str = ""
    acc_dtype: str = ""
    shared_layout: str = ""
    input_layout: str = ""
    kernel_layout: str = ""
    output_layout: str = ""
    input_strides: tuple[int, ...] | None = None
    kernel_strides: tuple[int, ...] | None = None
    output_strides: tuple[int, ...] | None = None
    epilogue: Epilogue = field(default=IDENTITY)
    deterministic: bool = False

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        for name in ("input_shape", "kernel_shape"):
            put(name, _sizes(name, getattr(self, name)))
        dims = self._resolve_layouts()
        put("stride", _per_axis("stride", self.stride, dims, 1))
        put("padding", _per_axis("padding", self.padding, dims, 0))
        put("dilation", _per_axis("dilation", self.dilation, dims, 1))
        put("output_padding", _per_axis("output_padding", self.output_padding, dims, 0))
        if self.mode not in MODES:
            raise ProblemError(f"mode {self.mode!r} does not exist; known: {', '.join(MODES)}")
        for name in ("transposed", "deterministic"):
            if not isinstance(getattr(self, name), bool):
                raise ProblemError(f"{name} must be True or False, got {getattr(self, name)!r}")
        self._resolve_dtypes()
        self._check_channels()
        self._check_spatial()
        self._resolve_strides()

    # --- resolution and rules -------------------------------------------------------------------------------------

    def _resolve_layouts(self) -> int:
        """Fill in the three layouts; returns the number of spatial axes."""
        given = {
            name: getattr(self, name) or self.shared_layout
            for name in ("input_layout", "kernel_layout", "output_layout")
        }
        named = next((parse_layout(text) for text in given.values() if text), None)
        dims = named.spatial_dims if named else len(self.input_shape) - 2
        if dims not in (1, 2, 3):
            raise ProblemError(
                f"input_shape {self.input_shape} has {len(self.input_shape)} axes; a convolution has 3, 4 or 5"
            )
        for name, text in given.items():
            layout = parse_layout(text, dims) if text else default_layout(dims)
            object.__setattr__(self, name, str(layout))
        object.__setattr__(self, "shared_layout", "")
        for name, layout_name in (("input_shape", self.input_layout), ("kernel_shape", self.kernel_layout)):
            layout, shape = parse_layout(layout_name), getattr(self, name)
            if len(shape) != layout.rank:
                raise ProblemError(f"{name} {shape} has {len(shape)} axes, its layout {layout} has {layout.rank}")
            if layout.vector > 1 and shape[-1] != layout.vector:
                raise ProblemError(f"{name} {shape}: the last axis of layout {layout} must be {layout.vector}")
        return dims

    def _resolve_dtypes(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        base = known_dtype(self.dtype)
        put("input_dtype", self.input_dtype or base.name)
        put("kernel_dtype", self.kernel_dtype or base.name)
        x, w = known_dtype(self.input_dtype), known_dtype(self.kernel_dtype)
        put("output_dtype", self.output_dtype or ("int32" if x.name == "int8" else base.name))
        y = known_dtype(self.output_dtype)
        put("acc_dtype", self.acc_dtype or default_acc_dtype(x.name, w.name, y.name))
        acc = known_dtype(self.acc_dtype)
        integers = {d.name for d in (x, w, y, acc) if d.is_integer}
        if integers:
            operand, result = (y, x) if self.mode == "bwd" else (x, y)
            if (operand.name, w.name, result.name, acc.name) != ("int8", "int8", "int32", "int32") or self.mode not in (
                "fwd",
                "bwd",
            ):
                got = f"{operand.name} x {w.name} -> {result.name}, accumulated in {acc.name}, mode {self.mode}"
                raise ProblemError(
                    f"integers come as int8 x int8 -> int32 accumulated in int32, mode fwd or bwd; got {got}"
                )
            if self.epilogue.activation not in ("none", "relu", "clamp"):
                raise ProblemError(f"activation {self.epilogue.activation!r} needs a floating-point result, got int32")
        elif acc.name not in ("fp32", "fp64"):
            raise ProblemError(f"acc_dtype {acc.name!r}: floating-point problems accumulate in fp32 or fp64")
        elif acc.name == "fp32" and "fp64" in (x.name, w.name, y.name):
            raise ProblemError("acc_dtype 'fp32' is narrower than an fp64 tensor; use fp64")
        # One spelling: ``dtype`` follows the input.
        put("dtype", self.input_dtype)

    def _check_channels(self) -> None:
        if isinstance(self.groups, bool) or not isinstance(self.groups, int) or not 1 <= self.groups <= MAX_SIZE:
            raise ProblemError(f"groups must be an integer from 1 to 2^31-1, got {self.groups!r}")
        c, first, second = self.input_logical[1], self.kernel_logical[0], self.kernel_logical[1]
        inner, outer = (first, second * self.groups) if self.transposed else (second * self.groups, first)
        if c % self.groups:
            raise ProblemError(f"groups {self.groups} does not divide the {c} input channels")
        if outer % self.groups:
            raise ProblemError(f"groups {self.groups} does not divide the {outer} output channels")
        if inner != c:
            what = "first axis" if self.transposed else f"second axis times groups {self.groups}"
            raise ProblemError(f"the filter's {what} is {inner}, the input has {c} channels")
        if outer > MAX_SIZE:
            raise ProblemError(f"{outer} output channels; sizes end at 2^31-1")

    def _check_spatial(self) -> None:
        if self.epilogue != IDENTITY and self.mode not in ("fwd", "bwd"):
            raise ProblemError(f"an epilogue goes with mode fwd or bwd, got {self.mode}")
        if not self.transposed and any(self.output_padding):
            raise ProblemError(f"output_padding {self.output_padding} goes with transposed=True only")
        for i, size in enumerate(self.input_logical[2:]):
            filter_, s, p = self.kernel_logical[2 + i], self.stride[i], self.padding[i]
            d, extra = self.dilation[i], self.output_padding[i]
            reach = d * (filter_ - 1) + 1
            if self.transposed:
                if extra >= s:
                    raise ProblemError(f"output_padding {extra} must be smaller than the stride {s}")
                result = (size - 1) * s - 2 * p + reach + extra
            else:
                if reach > size + 2 * p:
                    raise ProblemError(
                        f"filter of reach {reach} (size {filter_}, dilation {d}) is wider than the padded input "
                        f"{size} + 2*{p}"
                    )
                result = (size + 2 * p - reach) // s + 1
            if not 1 <= result <= MAX_SIZE:
                raise ProblemError(f"spatial axis {i}: output size {result} is outside 1 to 2^31-1")

    def _resolve_strides(self) -> None:
        for name, shape in (("input", self.input_shape), ("kernel", self.kernel_shape), ("output", self.output_shape)):
            given = getattr(self, f"{name}_strides")
            if given is None:
                continue
            strides = _sizes(f"{name}_strides", given)
            if len(strides) != len(shape):
                raise ProblemError(f"{name}_strides {strides} has {len(strides)} values, the tensor {len(shape)} axes")
            if parse_layout(getattr(self, f"{name}_layout")).vector > 1 and strides[-1] != 1:
                raise ProblemError(f"{name}_strides {strides}: the vector axis must have stride 1")
            inner = 1
            for size, stride in reversed(list(zip(shape, strides, strict=True))):
                if size > 1 and stride < inner:
                    raise ProblemError(
                        f"{name}_strides {strides} overlap: axis of stride {stride} lies inside {inner} elements"
                    )
                inner = max(inner, stride * size) if size > 1 else inner
            object.__setattr__(self, f"{name}_strides", None if _same_memory(shape, strides) else strides)

    # --- sizes ----------------------------------------------------------------------------------------------------

    @property
    def spatial_dims(self) -> int:
        return parse_layout(self.input_layout).spatial_dims

    @cached_property
    def input_logical(self) -> tuple[int, ...]:
        """``(N, C, *spatial)`` of the forward input."""
        return parse_layout(self.input_layout).logical_shape(self.input_shape)

    @cached_property
    def kernel_logical(self) -> tuple[int, ...]:
        """``(K, C/groups, *spatial)`` of the filter; ``(C, K/groups, *spatial)`` when transposed."""
        return parse_layout(self.kernel_layout).logical_shape(self.kernel_shape)

    @cached_property
    def output_logical(self) -> tuple[int, ...]:
        """``(N, K, *spatial)`` of the forward output."""
        k = self.kernel_logical[1] * self.groups if self.transposed else self.kernel_logical[0]
        sizes = []
        for i, size in enumerate(self.input_logical[2:]):
            reach = self.dilation[i] * (self.kernel_logical[2 + i] - 1) + 1
            if self.transposed:
                sizes.append((size - 1) * self.stride[i] - 2 * self.padding[i] + reach + self.output_padding[i])
            else:
                sizes.append((size + 2 * self.padding[i] - reach) // self.stride[i] + 1)
        return (self.input_logical[0], k, *sizes)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the forward output in ``output_layout``."""
        return parse_layout(self.output_layout).layout_shape(self.output_logical)

    # --- canonical form -------------------------------------------------------------------------------------------

    @cached_property
    def canonical(self) -> ConvSignature:
        """The one spelling of this problem: not transposed, at least two spatial axes, no field that changes nothing.

        Transposed forward is backward data with the names exchanged; ``canonical_order`` says where its arguments come
        from.
        """
        sig = self
        if sig.mode == "bgrad":
            sig = _canonical_bgrad(sig)
        elif sig.transposed:
            swapped = {"fwd": "bwd", "bwd": "fwd", "wrw": "wrw"}[sig.mode]
            sig = replace(
                sig, transposed=False, output_padding=0, mode=swapped,
                input_shape=sig.output_shape, input_layout=sig.output_layout,
                output_layout=sig.input_layout, dtype=sig.output_dtype, input_dtype=sig.output_dtype,
                output_dtype=sig.input_dtype, input_strides=sig.output_strides, output_strides=sig.input_strides,
            )  # fmt: skip
        if sig.spatial_dims == 1:
            sig = _with_height(sig)
        ones = tuple(1 if f == 1 else d for f, d in zip(sig.kernel_logical[2:], sig.dilation, strict=True))
        return sig if ones == sig.dilation else replace(sig, dilation=ones)

    @property
    def canonical_order(self) -> tuple[int, ...]:
        """For each input argument of ``canonical``, the index of this signature's argument that it is."""
        inputs = {"fwd": 2, "bwd": 2, "wrw": 2, "bgrad": 1}[self.mode] + self.epilogue.bias + self.epilogue.residual
        return (1, 0) if self.transposed and self.mode == "wrw" else tuple(range(inputs))

    @cached_property
    def geometry(self) -> ConvGeometry:
        """The canonical problem as plain numbers in three spatial dimensions, for solvers."""
        sig = self.canonical
        x, w, y = sig.input_logical, sig.kernel_logical, sig.output_logical
        return ConvGeometry(
            direction=sig.mode, n=x[0], c=x[1], k=y[1], groups=sig.groups,
            input=_triple(x[2:], 1), filter=_triple(w[2:], 1), output=_triple(y[2:], 1),
            stride=_triple(sig.stride, 1), padding=_triple(sig.padding, 0), dilation=_triple(sig.dilation, 1),
            x=_view("x", sig.input_dtype, sig.input_layout, sig.input_shape, sig.input_strides),
            w=_view("w", sig.kernel_dtype, sig.kernel_layout, sig.kernel_shape, sig.kernel_strides),
            y=_view("y", sig.output_dtype, sig.output_layout, sig.output_shape, sig.output_strides),
            acc_dtype=sig.acc_dtype, epilogue=sig.epilogue, deterministic=sig.deterministic,
        )  # fmt: skip


def _sizes(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """A tuple of integers from 1 to 2^31-1 (strides: to 2^62)."""
    limit = 2**62 if name.endswith("strides") else MAX_SIZE
    try:
        sizes = tuple(values)
    except TypeError:
        raise ProblemError(f"{name} must be a sequence of integers, got {values!r}") from None
    for value in sizes:
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= int(value) <= limit:
            raise ProblemError(
                f"{name} {sizes}: {value!r} is not an integer from 1 to {'2^62' if limit > MAX_SIZE else '2^31-1'}"
            )
    return tuple(int(value) for value in sizes)


def _per_axis(name: str, value: int | Sequence[int], dims: int, least: int) -> tuple[int, ...]:
    """One integer a spatial axis, each from ``least`` to 2^31-1."""
    values = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,) * dims
    if len(values) != dims:
        raise ProblemError(f"{name} {values} has {len(values)} values, the problem has {dims} spatial axes")
    for item in values:
        if isinstance(item, bool) or not hasattr(item, "__index__") or not least <= int(item) <= MAX_SIZE:
            raise ProblemError(f"{name} {item!r} is not an integer from {least} to 2^31-1")
    return tuple(int(item) for item in values)


def _same_memory(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether ``strides`` address the same elements as dense ones do."""
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, dense_strides(shape), strict=True))


def _canonical_bgrad(sig: ConvSignature) -> ConvSignature:
    """The bias gradient reads dy alone, so every problem with this dy is the 1x1 depthwise one."""
    n, k, *spatial = sig.output_logical
    dims = len(spatial)
    shape = parse_layout(sig.output_layout).layout_shape(sig.output_logical)
    return ConvSignature(
        input_shape=shape, kernel_shape=(k, 1, *([1] * dims)), groups=k, mode="bgrad", dtype=sig.output_dtype,
        kernel_dtype=sig.output_dtype, output_dtype=sig.output_dtype, acc_dtype=sig.acc_dtype,
        input_layout=sig.output_layout, kernel_layout=str(default_layout(dims)), output_layout=sig.output_layout,
        output_strides=sig.output_strides, deterministic=sig.deterministic,
    )  # fmt: skip


def _with_height(sig: ConvSignature) -> ConvSignature:
    """The same problem with a unit height."""

    def lift(name: str) -> tuple[Layout, int]:
        layout = parse_layout(getattr(sig, f"{name}_layout"))
        at = layout.order.index("W")
        return Layout(layout.order[:at] + "H" + layout.order[at:], layout.vector), at

    changes: dict[str, object] = {}
    for name in ("input", "kernel", "output"):
        layout, at = lift(name)
        changes[f"{name}_layout"] = str(layout)
        shape = getattr(sig, f"{name}_shape")
        if name != "output":
            changes[f"{name}_shape"] = (*shape[:at], 1, *shape[at:])
        strides = getattr(sig, f"{name}_strides")
        if strides is not None:
            changes[f"{name}_strides"] = (*strides[:at], strides[at] * shape[at], *strides[at:])
    for name, unit in (("stride", 1), ("padding", 0), ("dilation", 1), ("output_padding", 0)):
        changes[name] = (unit, *getattr(sig, name))
    return replace(sig, **changes)  # type: ignore[arg-type]


def _triple(values: tuple[int, ...], fill: int) -> Triple:
    padded = (fill,) * (3 - len(values)) + tuple(values)
    return (padded[0], padded[1], padded[2])


def _view(
    name: str, dtype: str, layout_name: str, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> TensorView:
    layout = parse_layout(layout_name)
    n, c, *spatial = layout.logical_shape(shape)
    sn, sc, *steps = layout.logical_strides(strides or dense_strides(shape))
    d, h, w = _triple(tuple(spatial), 1)
    # A missing axis has size 1, so its stride never matters; 0 keeps equal memory equal.
    sd, sh, sw = _triple(tuple(steps), 0)
    return TensorView(name, dtype, (n, c, d, h, w), (sn, sc, sd, sh, sw), layout.vector)
