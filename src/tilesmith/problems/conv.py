"""``ConvSignature``: one convolution problem, as the user describes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tilesmith.errors import ProblemError
from tilesmith.problems.base import Problem
from tilesmith.problems.dtypes import TF32, default_acc_dtype, refuse_tf32
from tilesmith.problems.dtypes import acc_dtype as known_acc_dtype
from tilesmith.problems.dtypes import dtype as known_dtype
from tilesmith.problems.epilogue import IDENTITY, Epilogue
from tilesmith.problems.geometry import ConvGeometry
from tilesmith.problems.layouts import default_layout, dense_strides, parse_layout
from tilesmith.problems.limits import MAX_SIZE, MAX_STRIDE, read_limit, refuse_empty, whole_number, whole_numbers
from tilesmith.problems.padding import Padding, read_padding, sides

MODES = ("fwd", "bwd", "wrw", "bgrad")


@dataclass(frozen=True)
class ConvSignature(Problem):
    """One convolution, transposed convolution, or a gradient of one. Immutable, and checked when it is made.

    Shapes are those of the *forward* problem, in every mode. Below, ``N`` is the batch size, ``C`` the input channels
    and ``K`` the output channels. The output size of each spatial axis is
    ``(in + low + high - dilation*(filter - 1) - 1) // stride + 1``; transposed:
    ``(in - 1)*stride - low - high + dilation*(filter - 1) + 1 + output_padding``.

    Args:
        input_shape: Sizes of the input ``x``: ``(N, C, *spatial)`` with 1 to 3 spatial axes, in the order of
            ``input_layout``.
        kernel_shape: Sizes of the filter ``w``: ``(K, C / groups, *taps)``, in the order of ``kernel_layout``. With
            ``transposed``: ``(C, K / groups, *taps)``.
        stride: Elements from one filter position to the next, from 1: one integer, or one for each spatial axis.
        padding: Zeros around each spatial axis, in elements: one integer, one for each spatial axis, a ``(low, high)``
            pair for each spatial axis, or ``"valid"``, ``"same"`` (as in PyTorch) or ``"causal"`` (as in Keras). It
            reads back as integers if both sides of every axis are equal, else as pairs.
        dilation: Elements from one filter tap to the next, from 1: one integer, or one for each spatial axis.
        groups: Number of groups. It must divide ``C`` and ``K``.
        transposed: True for a transposed convolution.
        output_padding: Elements added to the high end of each spatial axis of a transposed result; smaller than the
            stride. One integer, or one for each spatial axis.
        mode: ``"fwd"`` computes y from (x, w), ``"bwd"`` dx from (dy, w), ``"wrw"`` dw from (dy, x), and ``"bgrad"`` db
            from (dy).
        dtype: Element type of all tensors: ``"fp64"``, ``"fp32"``, ``"fp16"``, ``"bf16"``, ``"fp8e4m3"``, ``"fp8e5m2"``
            or ``"int8"``.
        input_dtype: Element type of the input. Default: ``dtype``.
        kernel_dtype: Element type of the filter. Default: ``dtype``.
        output_dtype: Element type of the output. Default: ``dtype``; for int8 operands ``"int32"``, or ``"int8"`` if
            the epilogue has a scale.
        acc_dtype: Type of the sums. Default: ``"fp32"``; ``"fp64"`` if a tensor is fp64, ``"int32"`` for int8.
            ``"tf32"`` allows tensor cores to round fp32 operands to TF32.
        shared_layout: Layout of each tensor whose own layout is not given.
        input_layout: Order of the input's axes in memory, such as ``"NHWC"``. Default: ``shared_layout``, else
            ``"NCW"``, ``"NCHW"`` or ``"NCDHW"``.
        kernel_layout: Order of the filter's axes, with ``N`` for its first axis above and ``C`` for its second. Same
            default.
        output_layout: Order of the output's axes. Same default.
        input_strides: Strides of the input in elements, in the order of ``input_layout``. None: dense.
        kernel_strides: Strides of the filter in elements, in the order of ``kernel_layout``. None: dense.
        output_strides: Strides of the output in elements, in the order of ``output_layout``. None: dense.
        epilogue: Operations on the result before it is stored; ``fwd`` and ``bwd`` only. Default: none.
        deterministic: True to get the same bits at each call.
        workspace_limit: Largest workspace of a plan in bytes (``Plan.workspace_bytes``; packed filters do not count).
            None: no limit.

    Raises:
        ProblemError: A value breaks a rule. The message names the value and the rule.

    Examples:
        >>> from tilesmith import ConvSignature
        >>> ConvSignature((2, 32, 32, 16), (8, 3, 3, 16), stride=2, padding=1, shared_layout="NHWC").output_shape
        (2, 16, 16, 8)
    """

    input_shape: tuple[int, ...]
    kernel_shape: tuple[int, ...]
    stride: tuple[int, ...] = 1  # type: ignore[assignment]  # normalised in __post_init__
    padding: Padding = 0  # type: ignore[assignment]
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
    workspace_limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("input_shape", "kernel_shape"):
            self._put(name, whole_numbers(name, getattr(self, name), 0, MAX_SIZE))
        dims = self._resolve_layouts()
        self._check_sizes()
        for name, least in (("stride", 1), ("dilation", 1), ("output_padding", 0)):
            self._put(name, _per_axis(name, getattr(self, name), dims, least))
        if self.mode not in MODES:
            raise ProblemError(f"mode {self.mode!r} does not exist; known: {', '.join(MODES)}")
        for name in ("transposed", "deterministic"):
            if not isinstance(getattr(self, name), bool):
                raise ProblemError(f"{name} must be True or False, got {getattr(self, name)!r}")
        size, filter_ = self.input_logical[2:], self.kernel_logical[2:]
        self._put("padding", read_padding(self.padding, size, filter_, self.stride, self.dilation, self.transposed))
        if not isinstance(self.epilogue, Epilogue):
            raise ProblemError(f"epilogue must be an Epilogue, got {self.epilogue!r}")
        self._put("workspace_limit", read_limit(self.workspace_limit))
        self._resolve_dtypes()
        self._check_channels()
        self._check_spatial()
        self._resolve_strides()

    def _put(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

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
            self._put(name, str(layout))
        self._put("shared_layout", "")
        for name, layout_name in (("input_shape", self.input_layout), ("kernel_shape", self.kernel_layout)):
            layout, shape = parse_layout(layout_name), getattr(self, name)
            if len(shape) != layout.rank:
                raise ProblemError(f"{name} {shape} has {len(shape)} axes, its layout {layout} has {layout.rank}")
            if layout.vector > 1 and shape[-1] != layout.vector:
                raise ProblemError(f"{name} {shape}: the last axis of layout {layout} must be {layout.vector}")
        return dims

    def _check_sizes(self) -> None:
        """Check the sizes. As in PyTorch, the batch may be 0, and so may the channels of input and filter together."""
        may_be_empty = {"input": "NC", "kernel": "" if self.transposed else "C"}
        for name, letters in may_be_empty.items():
            layout, shape = parse_layout(getattr(self, f"{name}_layout")), getattr(self, f"{name}_shape")
            for index, letter in enumerate(layout.order):
                if letter not in letters:
                    whole_number(f"{name}_shape[{index}]", shape[index], 1, MAX_SIZE)

    def _resolve_dtypes(self) -> None:
        base = known_dtype(self.dtype).name
        # The result of int8 products is int32, or int8 with a scale. In mode bwd the result is the input gradient.
        whole = "int8" if self.epilogue.is_scaled else "int32"
        x = known_dtype(self.input_dtype or (whole if self.mode == "bwd" and base == "int8" else base))
        w = known_dtype(self.kernel_dtype or base)
        narrow_result = self.mode != "bwd" and x.name == "int8"
        y = known_dtype(self.output_dtype or (whole if narrow_result else base))
        acc = known_acc_dtype(self.acc_dtype or default_acc_dtype(x.name, w.name, y.name))
        if any(d.is_integer for d in (x, w, y, acc)):
            operand, result = (y, x) if self.mode == "bwd" else (x, y)
            chain = (operand.name, w.name, result.name, acc.name)
            if chain != ("int8", "int8", whole, "int32") or self.mode not in ("fwd", "bwd"):
                with_scale = "with" if self.epilogue.is_scaled else "without"
                raise ProblemError(
                    f"{with_scale} a scale integers come as int8 x int8 -> {whole} accumulated in int32, mode fwd or "
                    f"bwd; got {operand.name} x {w.name} -> {result.name}, accumulated in {acc.name}, mode {self.mode}"
                )
            if whole == "int32" and self.epilogue.activation not in ("none", "relu", "clamp"):
                raise ProblemError(f"activation {self.epilogue.activation!r} needs a floating-point result, got int32")
        elif acc is TF32:
            refuse_tf32((x.name, w.name, y.name))
        elif acc.name not in ("fp32", "fp64"):
            raise ProblemError(f"acc_dtype {acc.name!r}: floating-point problems accumulate in fp32, fp64 or tf32")
        elif acc.name == "fp32" and "fp64" in (x.name, w.name, y.name):
            raise ProblemError("acc_dtype 'fp32' is narrower than an fp64 tensor; use fp64")
        self.epilogue.refuse_result(x.name if self.mode == "bwd" else y.name)
        for name, value in (("input_dtype", x), ("kernel_dtype", w), ("output_dtype", y), ("acc_dtype", acc)):
            self._put(name, value.name)
        self._put("dtype", x.name)  # so that equal problems compare equal

    def _check_channels(self) -> None:
        self._put("groups", whole_number("groups", self.groups, 1, MAX_SIZE))
        c, first, second = self.input_logical[1], self.kernel_logical[0], self.kernel_logical[1]
        inner, outer = (first, second * self.groups) if self.transposed else (second * self.groups, first)
        if c % self.groups:
            raise ProblemError(f"groups {self.groups} does not divide the {c} input channels")
        if outer % self.groups:
            raise ProblemError(f"groups {self.groups} does not divide the {outer} output channels")
        if inner != c:
            what = "first axis" if self.transposed else f"second axis times groups {self.groups}"
            raise ProblemError(
                f"the filter's {what} is {inner}, the input has {c} channels; axes are read as {self.input_layout}, "
                f"the filter's as {self.kernel_layout}: name others by shared_layout=, input_layout= or kernel_layout="
            )
        if outer > MAX_SIZE:
            raise ProblemError(f"{outer} output channels; sizes end at 2^31-1")

    def _check_spatial(self) -> None:
        if self.epilogue != IDENTITY and self.mode not in ("fwd", "bwd"):
            raise ProblemError(f"an epilogue goes with mode fwd or bwd, got {self.mode}")
        if not self.transposed and any(self.output_padding):
            raise ProblemError(f"output_padding {self.output_padding} goes with transposed=True only")
        padding = sides(self.padding)
        for i, size in enumerate(self.input_logical[2:]):
            filter_, s, (low, high) = self.kernel_logical[2 + i], self.stride[i], padding[i]
            d, extra = self.dilation[i], self.output_padding[i]
            reach = d * (filter_ - 1) + 1
            if self.transposed:
                if extra >= s:
                    raise ProblemError(f"output_padding {extra} must be smaller than the stride {s}")
                result = (size - 1) * s - low - high + reach + extra
            else:
                if reach > size + low + high:
                    padded = f"2*{low}" if low == high else f"{low} + {high}"
                    raise ProblemError(
                        f"filter of reach {reach} (size {filter_}, dilation {d}) is wider than the padded input "
                        f"{size} + {padded}"
                    )
                result = (size + low + high - reach) // s + 1
            if not 1 <= result <= MAX_SIZE:
                raise ProblemError(f"spatial axis {i}: output size {result} is outside 1 to 2^31-1")

    def _resolve_strides(self) -> None:
        for name, shape in (("input", self.input_shape), ("kernel", self.kernel_shape), ("output", self.output_shape)):
            given = getattr(self, f"{name}_strides")
            strides = dense_strides(shape)
            if given is not None:
                strides = self._checked_strides(name, shape, given)
                self._put(f"{name}_strides", None if strides == dense_strides(shape) else strides)
            elements = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
            if elements * 8 > MAX_STRIDE:
                raise ProblemError(f"{name} {shape} spans {elements} elements; tensors end at 2^59")

    def _checked_strides(self, name: str, shape: tuple[int, ...], given: object) -> tuple[int, ...]:
        """Check the strides. The stride of an axis of size 1 is set to the dense one, because it changes no address."""
        strides = list(whole_numbers(f"{name}_strides", given, 1, MAX_STRIDE))
        if len(strides) != len(shape):
            raise ProblemError(f"{name}_strides {given} has {len(strides)} values, the tensor {len(shape)} axes")
        if parse_layout(getattr(self, f"{name}_layout")).vector > 1 and strides[-1] != 1:
            raise ProblemError(f"{name}_strides {given}: the vector axis must have stride 1")
        inner = 1
        for axis in reversed(range(len(shape))):
            if shape[axis] == 1:
                strides[axis] = inner
            elif strides[axis] < inner:
                raise ProblemError(
                    f"{name}_strides {given} overlap: axis {axis} has stride {strides[axis]} inside {inner} elements"
                )
            inner = strides[axis] * shape[axis]
        return tuple(strides)

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

    @property
    def padding_low(self) -> tuple[int, ...]:
        """Padding before the first element of each spatial axis."""
        return tuple([low for low, _ in sides(self.padding)])

    @property
    def padding_high(self) -> tuple[int, ...]:
        """Padding after the last element of each spatial axis."""
        return tuple([high for _, high in sides(self.padding)])

    @property
    def output_channels(self) -> int:
        """``K``, the number of output channels; a bias has ``K`` elements."""
        return self.kernel_logical[1] * self.groups if self.transposed else self.kernel_logical[0]

    @property
    def is_empty(self) -> bool:
        """True if the input has no elements: the result is empty or zero plus epilogue, and no kernel computes it."""
        return 0 in self.input_shape

    @cached_property
    def output_logical(self) -> tuple[int, ...]:
        """``(N, K, *spatial)`` of the forward output."""
        # As in PyTorch: without input channels there are no output channels.
        k = self.output_channels if self.input_logical[1] else 0
        sizes = []
        padding = sides(self.padding)
        for i, size in enumerate(self.input_logical[2:]):
            reach = self.dilation[i] * (self.kernel_logical[2 + i] - 1) + 1
            padded = sum(padding[i])
            if self.transposed:
                sizes.append((size - 1) * self.stride[i] - padded + reach + self.output_padding[i])
            else:
                sizes.append((size + padded - reach) // self.stride[i] + 1)
        return (self.input_logical[0], k, *sizes)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the forward output in ``output_layout``."""
        return parse_layout(self.output_layout).layout_shape(self.output_logical)

    # --- canonical form -------------------------------------------------------------------------------------------

    @cached_property
    def canonical(self) -> ConvSignature:
        """The canonical form: not transposed, at least two spatial axes, default values in fields without effect.

        All signatures of one problem have the same canonical form. A transposed forward convolution becomes ``bwd``
        with exchanged names; ``canonical_order`` maps the arguments.
        """
        from tilesmith.problems.canonical import canonical_conv

        return self if self.is_empty else canonical_conv(self)

    @property
    def canonical_order(self) -> tuple[int, ...]:
        """For each input argument of ``canonical``, the index of the same argument in this signature."""
        inputs = {"fwd": 2, "bwd": 2, "wrw": 2, "bgrad": 1}[self.mode]
        inputs += self.epilogue.bias + self.epilogue.residual + self.epilogue.is_scaled
        return (1, 0) if self.transposed and self.mode == "wrw" else tuple(range(inputs))

    @cached_property
    def geometry(self) -> ConvGeometry:
        """The canonical problem as plain numbers in three spatial dimensions, for solvers."""
        from tilesmith.problems.canonical import conv_geometry

        refuse_empty(self)
        return conv_geometry(self.canonical)

    # --- text and arguments ---------------------------------------------------------------------------------------

    @cached_property
    def _key(self) -> str:
        from tilesmith.problems.key_text import conv_key

        return conv_key(self)

    @staticmethod
    def parse(text: str) -> ConvSignature:
        """The canonical signature whose ``key()`` is ``text``; ``ProblemError`` if there is none."""
        from tilesmith.problems.keys import parse_conv_key

        return parse_conv_key(text)

    def get_func_name(self) -> str:
        """A readable C identifier that no other signature has."""
        from tilesmith.problems.func_name import conv_func_name

        return conv_func_name(self)


def _per_axis(name: str, value: object, dims: int, least: int) -> tuple[int, ...]:
    """One integer for each spatial axis, each from ``least`` to 2^31-1; a single integer is used for all axes."""
    if isinstance(value, str):
        digits = value.strip()
        typed = f"type {name}={digits}" if digits.isascii() and digits.isdecimal() else "give an integer"
        raise ProblemError(
            f"{name} {value!r} is text; it is an integer, or one for each of {dims} spatial axes; {typed}"
        )
    if not isinstance(value, tuple | list):
        try:
            value = tuple(value)  # type: ignore[arg-type]  # the test is the call
        except TypeError:
            value = (value,) * dims
    if len(value) != dims:
        raise ProblemError(
            f"{name} {tuple(value)} has {len(value)} values, the problem has {dims} spatial axes; "
            f"give one value, or {dims}"
        )
    return tuple(whole_number(name, item, least, MAX_SIZE) for item in value)
