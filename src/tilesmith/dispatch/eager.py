"""``conv`` and ``gemm``: the arrays give the problem. The first call with a problem decides which kernel runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilesmith.dispatch import kept_calls
from tilesmith.dispatch.arrays import ArrayLayout, check_gradient, describe
from tilesmith.dispatch.calls import Call, DirectCall, PlacedCall, ProductCall
from tilesmith.dispatch.kept_calls import LIMIT, by_arrays, by_filter, by_shapes, with_gradients
from tilesmith.dispatch.launchable import Launchable, get_launchable
from tilesmith.dispatch.layout_names import NamedArray, place, result_order
from tilesmith.errors import ArgumentError, TilesmithError
from tilesmith.plan.slots import arguments, relaid
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.dtypes import dtype as known_dtype
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.layouts import default_layout, dense_strides, parse_layout
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime._runtime import run_kept, torch_watches
from tilesmith.runtime.arguments import mixed, to_type
from tilesmith.runtime.torch_rules import refuse_watched

Axes = int | Sequence[int]
_Call = Callable[..., Any]
# Types of tensors that have no operators of their own: PyTorch's side adds them.
plain_types: set[type] = set()
# What the package knows and this folder may not import: PyTorch's side of both calls.
_package = sys.modules["tilesmith"]
_PLAIN = 0  # what run_kept says of a call that is no more than a launch, and that it does not know
_NAMES = {"conv": ("x", "w", "b", "residual"), "gemm": ("a", "b", "c", "bias", "residual")}


def conv(
    x: Any, w: Any, b: Any = None, *, stride: Axes = 1, padding: Axes | Sequence[Sequence[int]] | str = 0,
    dilation: Axes = 1, groups: int = 1, transposed: bool = False, output_padding: Axes = 0, input_layout: str = "",
    kernel_layout: str = "", output_layout: str = "", shared_layout: str = "", activation: str = "none",
    slope: float = 0.01, low: float = 0.0, high: float = 6.0, residual: Any = None, threads: int | None = None,
    mode: str | None = None, acc_dtype: str = "",
) -> Any:  # fmt: skip
    """Compute a convolution, or a transposed convolution, of arrays.

    The first call with these shapes, strides, dtypes and options decides which kernel runs. Later calls look the kernel
    up. The arrays are NumPy arrays, or PyTorch tensors (on the CPU or on a CUDA device); all of one kind. Below, ``N``
    is the batch size, ``C`` the input channels and ``K`` the output channels.

    For PyTorch's tensors the call is the operator ``torch.ops.tilesmith.convolution``: it records gradients, obeys
    ``torch.autocast`` and ``torch.use_deterministic_algorithms``, and takes part in ``torch.compile``,
    ``torch.export``, traces and transforms of ``torch.func``.

    Args:
        x: Input, 3, 4 or 5 axes: ``(N, C, *spatial)``, in the order of ``input_layout``. Element types: fp64, fp32,
            fp16, bf16, fp8 and int8. A tensor may lack the batch axis if no layout is given; the result lacks it, too.
        w: Filter, of x's dtype: ``(K, C / groups, *taps)``, in the order of ``kernel_layout``. With ``transposed``:
            ``(C, K / groups, *taps)``.
        b: Bias of shape ``(K,)`` and of the result's dtype. None: no bias.
        stride: Elements from one filter position to the next, from 1: one integer, or one for each spatial axis.
        padding: Zeros around each spatial axis, in elements: one integer, one for each spatial axis, a ``(low, high)``
            pair for each spatial axis, or ``"valid"``, ``"same"`` or ``"causal"``.
        dilation: Elements from one filter tap to the next, from 1: one integer, or one for each spatial axis.
        groups: Number of groups. It must divide ``C`` and ``K``.
        transposed: Compute the transposed convolution.
        output_padding: Elements added to the high end of each spatial axis of a transposed result; smaller than the
            stride. One integer, or one for each spatial axis.
        input_layout: Order of x's axes, such as ``"NHWC"``. Default: ``shared_layout``, else ``"NCW"``, ``"NCHW"`` or
            ``"NCDHW"``.
        kernel_layout: Order of w's axes, with ``N`` for the first axis above and ``C`` for the second. Same default.
        output_layout: Order of the result's axes. Same default. Without ``output_layout`` and ``shared_layout``, the
            result has the memory order of x: channels-last stays channels-last. PyTorch's tensors without layouts:
            channels-last if x or w is, as PyTorch does it, else channels-first.
        shared_layout: Layout of each tensor whose own layout is not given.
        activation: ``"none"``, ``"relu"``, ``"leaky_relu"``, ``"silu"``, ``"gelu"``, ``"gelu_tanh"``, ``"clamp"``,
            ``"sigmoid"``, ``"tanh"``, ``"hardswish"`` or ``"hardsigmoid"``.
        slope: Factor of ``"leaky_relu"`` for negative values.
        low: Lower limit of ``"clamp"``.
        high: Upper limit of ``"clamp"``.
        residual: Array of the result's shape and dtype, added before the activation. None: no residual.
        threads: Number of CPU threads, from 1 to 1024. None: TILESMITH_NUM_THREADS, else all usable cores. Ignored on a
            GPU.
        mode: ``"fast"``, ``"background"``, ``"hybrid"``, ``"normal"``, ``"trust_verify"`` or ``"strict"``. None:
            TILESMITH_FIND_MODE.
        acc_dtype: Type of the sums. Default: ``"fp32"``; ``"fp64"`` for fp64 arrays, ``"int32"`` for int8 arrays.
            ``"tf32"`` allows tensor cores to round fp32 operands to TF32.

    Returns:
        ``activation(conv(x, w) + b + residual)``: a new array of x's kind and dtype (int32 for int8), in the order of
        ``output_layout``.

    Raises:
        ProblemError: The problem cannot exist: sizes, strides, groups, layouts or dtypes break a rule.
        ArgumentError: An array cannot be a tensor of the problem: its dtype, device or kind differs.
        NoSolutionError: No solver computes the problem, or ``strict`` mode has no answer.
        NoCompilerError: A kernel must be compiled, and there is no compiler.

    Examples:
        >>> import numpy as np, tilesmith
        >>> x, w = np.ones((1, 8, 6, 6), np.float32), np.ones((16, 8, 3, 3), np.float32)
        >>> tilesmith.conv(x, w, padding=1, activation="relu").shape
        (1, 16, 6, 6)
    """
    options = (
        stride, padding, dilation, groups, transposed, output_padding, input_layout, kernel_layout, output_layout,
        shared_layout, activation, slope, low, high, threads, mode, acc_dtype, False,
    )  # fmt: skip
    if type(x) is not np.ndarray and is_traced():
        return _package.tensor_calls().conv((x, w, b, residual), options, None)
    quick: tuple[Any, ...] | None = None
    try:
        if residual is None:
            if b is None:
                kept = run_kept(plain_types, by_filter, with_gradients, is_recording, options, x, w)
            else:
                kept = run_kept(plain_types, by_filter, with_gradients, is_recording, options, x, w, b)
            if type(kept) is not int:
                return kept
            # A trace records that a shape is read.
            if kept == _PLAIN and (type(w) is np.ndarray or not torch_watches()):
                quick = (type(x), x.shape, w.shape, x.dtype, b is None, options)
                bound = by_shapes.get(quick)
                if bound is not None:
                    y = bound(x, w) if b is None else bound(x, w, b)
                    own = (id(w), b is None, options)
                    if own not in by_filter:
                        _remember(own, bound, quick)
                    return y
    except ArgumentError:
        pass
    except TilesmithError:
        raise
    except (AttributeError, TypeError, RuntimeError, ValueError):  # no array, one without a shape, or a list as option
        quick = None
    if _has_tensor(x, w, b, residual):
        return _package.tensor_calls().conv((x, w, b, residual), options, quick)
    return run_conv((x, w, b, residual), options, quick)


def gemm(
    a: Any, b: Any, c: Any = None, bias: Any = None, *, alpha: float = 1.0, beta: float = 0.0, trans_a: bool = False,
    trans_b: bool = False, activation: str = "none", slope: float = 0.01, low: float = 0.0, high: float = 6.0,
    residual: Any = None, threads: int | None = None, mode: str | None = None, acc_dtype: str = "",
) -> Any:  # fmt: skip
    """Compute a matrix product, or a batch of them, with an epilogue.

    The first call with these shapes, strides, dtypes and options decides which kernel runs. Later calls look the kernel
    up. The arrays are NumPy arrays, or PyTorch tensors (on the CPU or on a CUDA device); all of one kind. For PyTorch's
    tensors the call is the operator ``torch.ops.tilesmith.gemm``, as ``conv`` is one.

    Args:
        a: Matrix of shape ``(m, k)``, or ``(batch, m, k)``. With ``trans_a``: ``(k, m)`` or ``(batch, k, m)``. Element
            types: fp64, fp32, fp16, bf16, fp8 and int8.
        b: Matrix of a's dtype and batch: ``(k, n)`` or ``(batch, k, n)``. With ``trans_b``: ``(n, k)`` or
            ``(batch, n, k)``.
        c: Matrix of the result's shape and dtype. It is added with the factor ``beta``, and is not written. None: no c,
            and ``beta`` must be 0.
        bias: One element for each column: shape ``(n,)``, the result's dtype. None: no bias.
        alpha: Factor of the product; finite.
        beta: Factor of ``c``; finite. With 0, ``c`` is not read.
        trans_a: ``a`` is stored transposed.
        trans_b: ``b`` is stored transposed.
        activation: ``"none"``, ``"relu"``, ``"leaky_relu"``, ``"silu"``, ``"gelu"``, ``"gelu_tanh"``, ``"clamp"``,
            ``"sigmoid"``, ``"tanh"``, ``"hardswish"`` or ``"hardsigmoid"``.
        slope: Factor of ``"leaky_relu"`` for negative values.
        low: Lower limit of ``"clamp"``.
        high: Upper limit of ``"clamp"``.
        residual: Array of the result's shape and dtype, added before the activation. None: no residual.
        threads: Number of CPU threads, from 1 to 1024. None: TILESMITH_NUM_THREADS, else all usable cores. Ignored on a
            GPU.
        mode: ``"fast"``, ``"background"``, ``"hybrid"``, ``"normal"``, ``"trust_verify"`` or ``"strict"``. None:
            TILESMITH_FIND_MODE.
        acc_dtype: Type of the sums. Default: ``"fp32"``; ``"fp64"`` for fp64 arrays, ``"int32"`` for int8 arrays.
            ``"tf32"`` allows tensor cores to round fp32 operands to TF32.

    Returns:
        ``activation(alpha * op(a) @ op(b) + beta * c + bias + residual)``: a new dense array of shape ``(m, n)`` or
        ``(batch, m, n)``, of a's kind and dtype (int32 for int8).

    Raises:
        ProblemError: The problem cannot exist: a size, factor or dtype breaks a rule.
        ArgumentError: The shapes of the arrays do not fit together, or an array has another dtype, device or kind.
        NoSolutionError: No solver computes the problem, or ``strict`` mode has no answer.
        NoCompilerError: A kernel must be compiled, and there is no compiler.

    Examples:
        >>> import numpy as np, tilesmith
        >>> a, b = np.ones((4, 8), np.float32), np.ones((8, 3), np.float32)
        >>> float(tilesmith.gemm(a, b, alpha=0.5)[0, 0])
        4.0
    """
    options = (alpha, beta, trans_a, trans_b, activation, slope, low, high, threads, mode, acc_dtype, False)
    if type(a) is not np.ndarray and is_traced():
        return _package.tensor_calls().gemm((a, b, c, bias, residual), options, None)
    quick: tuple[Any, ...] | None = None
    try:
        if residual is None and bias is None and c is None:
            # Of products without gradients by_filter holds none.
            kept = run_kept(plain_types, by_filter, with_gradients, is_recording, options, a, b)
            if type(kept) is not int:
                return kept
            if kept == _PLAIN and (type(b) is np.ndarray or not torch_watches()):
                quick = (type(a), a.shape, b.shape, a.dtype, options)
                bound = by_shapes.get(quick)
                if bound is not None:
                    return bound(a, b)
    except ArgumentError:
        pass
    except TilesmithError:
        raise
    except (AttributeError, TypeError, RuntimeError, ValueError):
        quick = None
    if _has_tensor(a, b, c, bias, residual):
        return _package.tensor_calls().gemm((a, b, c, bias, residual), options, quick)
    return run_gemm((a, b, c, bias, residual), options, quick)


def is_recording() -> bool:
    """False while PyTorch records no gradient, as in ``torch.no_grad()``: then ``requires_grad`` can be ignored.

    PyTorch's side puts PyTorch's own function here.
    """
    return False


def _has_tensor(*arrays: Any) -> bool:
    """Whether one of these is a tensor of PyTorch, or stands for one in a trace."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return any(isinstance(each, torch.Tensor) or type(each).__module__ == "torch.fx.proxy" for each in arrays)


def is_traced() -> bool:
    """Whether ``torch.compile`` reads this call instead of running it: it replaces the answer by True.

    PyTorch's side puts PyTorch's own function here.
    """
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def _remember(own: tuple[int, bool, tuple[Any, ...]], bound: _Call, quick: tuple[Any, ...]) -> None:
    if len(by_filter) >= LIMIT:
        by_filter.clear()
    by_filter[own] = bound
    if by_shapes.get(quick) is not bound:  # another thread has emptied the tables meanwhile
        by_filter.pop(own, None)


def run_conv(arrays: tuple[Any, ...], options: tuple[Any, ...], quick: tuple[Any, ...] | None) -> Any:
    """Look the call up by shapes, strides, dtypes, devices and options, or make it; then run it."""
    emptied = kept_calls.emptied
    return _run(find_conv(arrays, *options), arrays, quick, emptied)


def run_gemm(arrays: tuple[Any, ...], options: tuple[Any, ...], quick: tuple[Any, ...] | None) -> Any:
    """Look a call of ``gemm`` up by shapes, strides, dtypes, devices and options, or make it; then run it."""
    emptied = kept_calls.emptied
    return _run(find_gemm(arrays, *options), arrays, quick, emptied)


def _run(call: Call, arrays: tuple[Any, ...], quick: tuple[Any, ...] | None, emptied: int) -> Any:
    if quick is not None and call.bound is not None:
        by_shapes[quick] = call.bound
        if emptied != kept_calls.emptied:  # another thread has emptied the tables since: the call may be outdated
            by_shapes.pop(quick, None)
    return call(*arrays)


def find_conv(arrays: tuple[Any, ...], *options: Any, out: Any = None, frozen: bool = False) -> Call:
    """Find the call of ``conv`` for ``x, w, b, residual``; ``options`` are all its options, then ``deterministic``.

    ``out`` is memory that the result shall have, or may have: the bound plan of the call takes it as ``out``.
    ``frozen`` says that the caller packs the filter once.
    """
    return _find("conv", arrays, options, out, frozen)


def find_gemm(arrays: tuple[Any, ...], *options: Any, out: Any = None, frozen: bool = False) -> Call:
    """Find the call of ``gemm`` for ``a, b, c, bias, residual``; the rest as in ``find_conv``."""
    return _find("gemm", arrays, options, out, frozen)


def _find(op: str, arrays: tuple[Any, ...], options: tuple[Any, ...], out: Any, frozen: bool) -> Call:
    refuse_watched(arrays)
    emptied = kept_calls.emptied
    try:
        key: Any = (op, *map(_key_of, _NAMES[op], arrays), options, _key_of("out", out), frozen)
        call = by_arrays.get(key)
    except TilesmithError:
        raise
    except (AttributeError, TypeError, RuntimeError, ValueError):
        key = call = None
    if call is None:
        make: Callable[..., Call] = _conv_call if op == "conv" else _gemm_call
        call = make(*arrays, *options, out, frozen)
        if len(by_arrays) >= LIMIT:
            by_arrays.clear()
            by_shapes.clear()
        if key is not None:
            by_arrays[key] = call
            if emptied != kept_calls.emptied:  # another thread has emptied the tables since: the call may be outdated
                by_arrays.pop(key, None)
    return call


def _key_of(name: str, array: Any) -> Any:
    """A hashable key of all properties of an array except its values. Every call runs this: keep it fast."""
    if type(array) is np.ndarray:
        return (array.shape, array.strides, array.dtype)
    if array is None:
        return None
    if array.requires_grad:
        check_gradient(name, array)
    return (array.shape, array.stride(), array.dtype, array.device)


def _launchable(
    signature: Signature, threads: int | None, mode: str | None, given: dict[str, ArrayLayout], frozen: bool
) -> Launchable:
    """The launchable for the device of the operands; ``threads`` is ignored on a GPU."""
    (first, one), (second, two) = given.items()
    if one.device != two.device:
        raise ArgumentError(f"{first} is on {one.device}, {second} is on {two.device}: they must be on one device")
    on_cpu = one.device == "cpu"
    return get_launchable(
        signature, threads=threads if on_cpu else None, device=None if on_cpu else one.device, mode=mode, frozen=frozen
    )


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _conv_call(
    x: Any, w: Any, b: Any, residual: Any, stride: Any, padding: Any, dilation: Any, groups: int, transposed: bool,
    output_padding: Any, input_layout: str, kernel_layout: str, output_layout: str, shared_layout: str,
    activation: str, slope: float, low: float, high: float, threads: int | None,
    mode: str | None, acc_dtype: str, deterministic: bool, out: Any, frozen: bool,
) -> Call:  # fmt: skip
    given = {"x": describe("x", x), "w": describe("w", w)}
    _same_kind({"x": x, "w": w, "b": b, "residual": residual}, given)
    rank, filter_rank = (len(described.shape) for described in given.values())
    if rank != filter_rank and rank in (3, 4, 5) and not (input_layout or kernel_layout or shared_layout):
        typed = "; an input without a batch axis needs one: type x[None]" if rank + 1 == filter_rank else ""
        shapes = f"x {given['x'].shape} has {rank} axes, w {given['w'].shape} has {filter_rank}"
        raise ArgumentError(f"{shapes}: they must be equal{typed}")
    named = next((text for text in (input_layout, kernel_layout, output_layout, shared_layout) if text), None)
    dims = parse_layout(named).spatial_dims if named else rank - 2
    default = str(default_layout(dims)) if dims in (1, 2, 3) else ""
    epilogue = Epilogue(b is not None, activation, residual is not None, slope, low, high)
    if not default:
        # Raises ProblemError, which explains the rule about the number of axes.
        ConvSignature(given["x"].shape, given["w"].shape)
    layouts = [
        str(parse_layout(text or shared_layout or default, dims))
        for text in (input_layout, kernel_layout, output_layout)
    ]  # fmt: skip
    free = not (output_layout or shared_layout)
    tensors = not isinstance(x, np.ndarray)
    lies = result_order(given["x"], given["w"], layouts, tensors=tensors) if free else layouts[2]
    options = {
        "stride": _tuple(stride), "padding": _tuple(padding), "dilation": _tuple(dilation), "groups": groups,
        "transposed": transposed, "output_padding": _tuple(output_padding), "dtype": given["x"].dtype,
        "acc_dtype": acc_dtype, "epilogue": epilogue, "deterministic": deterministic,
    }  # fmt: skip
    # The result's sizes are known only from a checked signature: make a first one with the layouts as given.
    plain = ConvSignature(
        given["x"].shape, given["w"].shape, input_layout=layouts[0], kernel_layout=layouts[1], output_layout=layouts[2],
        **options,
    )  # fmt: skip
    if plain.is_empty:
        _check_like("b", b, (plain.output_channels,), plain.output_dtype)
        _check_like("residual", residual, plain.output_shape, plain.output_dtype)
        empty = _launchable(plain, threads, mode, given, frozen)
        return DirectCall(empty.bound, empty)
    shape, back = plain.output_shape, [lies.index(axis) for axis in layouts[2]] if lies != layouts[2] else None
    dense = dense_strides(parse_layout(lies).layout_shape(plain.output_logical))
    strides = tuple(dense[axis] for axis in back) if back else dense
    y = ArrayLayout(shape, strides if back else None, plain.output_dtype, steps=strides)
    if out is not None:
        _check_like("out", out, shape, plain.output_dtype)
        y = describe("out", out)
    placed = place((given["x"], given["w"], y), layouts)
    signature = _signature_of(placed, options)
    _check_like("b", b, (signature.output_logical[1],), signature.output_dtype)
    _check_like("residual", residual, shape, signature.output_dtype)
    launch = _launchable(signature, threads, mode, given, frozen)
    plain_bias = b is None or describe("b", b).strides is None
    plain_residual = residual is None or describe("residual", residual).steps == y.steps
    taken = _bound_as_strided(launch, placed, given, y)
    if taken is not None and plain_bias and plain_residual:
        return DirectCall(taken, launch)
    return PlacedCall(launch, placed)


def _signature_of(placed: tuple[NamedArray, ...], options: dict[str, Any]) -> ConvSignature:
    x, w, y = placed
    return ConvSignature(
        x.shape, w.shape, input_layout=x.layout, kernel_layout=w.layout, output_layout=y.layout,
        input_strides=x.strides, kernel_strides=w.strides, output_strides=y.strides, **options,
    )  # fmt: skip


def _bound_as_strided(
    launch: Launchable, placed: tuple[NamedArray, ...], given: dict[str, ArrayLayout], y: ArrayLayout
) -> _Call | None:
    """The plan bound for arrays with their axes in the caller's order, so that a call permutes none of them.

    None if an array must be copied. The bound plan accepts operands with exactly these strides, because the strides of
    axes of size 1 decide the memory order of the result.
    """
    if not launch.exportable or any(each.copy for each in placed):
        return None
    *inputs, result = arguments(launch.signature)
    for index, described in enumerate(given.values()):
        assert described.steps is not None
        inputs[index] = relaid(inputs[index], described.shape, described.steps)
    assert y.steps is not None
    permuted_result = relaid(result, y.shape, y.steps)
    if launch.signature.epilogue.residual:
        inputs[-1] = relaid(inputs[-1], y.shape, y.steps)
    return launch.bound_for((*inputs, permuted_result))


def _gemm_call(
    a: Any, b: Any, c: Any, bias: Any, residual: Any, alpha: float, beta: float, trans_a: bool, trans_b: bool,
    activation: str, slope: float, low: float, high: float, threads: int | None,
    mode: str | None, acc_dtype: str, deterministic: bool, out: Any, frozen: bool,
) -> Call:  # fmt: skip
    given = {"a": describe("a", a), "b": describe("b", b)}
    _same_kind({"a": a, "b": b, "c": c, "bias": bias, "residual": residual}, given)
    ranks = {len(described.shape) for described in given.values()}
    if ranks not in ({2}, {3}):
        shapes = ", ".join(f"{name} {described.shape}" for name, described in given.items())
        raise ArgumentError(f"{shapes}: matrices have two axes, or three with the batch first{_shared(given, a)}")
    if beta != 0 and c is None:
        raise ArgumentError(f"beta is {beta}, and no c is given; pass c, or beta=0")
    batch = given["a"].shape[0] if ranks == {3} else 1
    if ranks == {3} and given["b"].shape[0] != batch:
        raise ArgumentError(f"a has {batch} matrices, b has {given['b'].shape[0]}: the batches must be equal")
    rows_a, columns_a = given["a"].shape[-2:]
    rows_b, columns_b = given["b"].shape[-2:]
    m, k = (columns_a, rows_a) if trans_a else (rows_a, columns_a)
    depth, n = (columns_b, rows_b) if trans_b else (rows_b, columns_b)
    if k != depth:
        raise ArgumentError(
            f"a {given['a'].shape} has k = {k}, b {given['b'].shape} has k = {depth}: they must be equal"
        )
    empty = 0 in (batch, m, n, k)
    rows = {name: (None, None) if empty else _rows(described) for name, described in given.items()}
    (lda, stride_a), (ldb, stride_b) = (found or (None, None) for found in rows.values())
    ldc, stride_c = (None if out is None else _rows(describe("out", out))) or (None, None)
    epilogue = Epilogue(bias is not None, activation, residual is not None, slope, low, high)
    signature = GemmSignature(
        m, n, k, batch=batch, trans_a=trans_a, trans_b=trans_b, dtype=given["a"].dtype, acc_dtype=acc_dtype,
        alpha=alpha, beta=beta, deterministic=deterministic,
        lda=lda, ldb=ldb, ldc=ldc, stride_a=stride_a, stride_b=stride_b, stride_c=stride_c, epilogue=epilogue,
    )  # fmt: skip
    result = (batch, m, n) if ranks == {3} else (m, n)
    _check_like("bias", bias, (n,), signature.c_dtype)
    _check_like("residual", residual, result, signature.c_dtype)
    _check_like("c", c if beta != 0 else None, result, signature.c_dtype)
    launch = _launchable(signature, threads, mode, given, frozen)
    squeeze = ranks == {3} and batch == 1
    plain_bias = bias is None or describe("bias", bias).strides is None
    if plain_bias and not (None in rows.values() or squeeze or c is not None or residual is not None):
        return DirectCall(launch.bound, launch)
    return ProductCall(launch, [found is None for found in rows.values()], squeeze, beta)


def _shared(given: dict[str, ArrayLayout], a: Any) -> str:
    """Advice for an error: how to use one matrix for all batches. Empty unless one operand has 3 axes and one has 2."""
    ranks = {name: len(described.shape) for name, described in given.items()}
    if sorted(ranks.values()) != [2, 3]:
        return ""
    (batched,), (single,) = ([name for name in ranks if ranks[name] == rank] for rank in (3, 2))
    shape = (given[batched].shape[0], *given[single].shape)
    typed = f"np.broadcast_to({single}, {shape})" if isinstance(a, np.ndarray) else f"{single}.expand{shape}"
    return f"; to share {single} between all batches, type {typed}"


def _rows(described: ArrayLayout) -> tuple[int | None, int | None] | None:
    """Leading dimension and batch stride of a matrix with contiguous rows; None when it must be copied."""
    if described.strides is None:
        return None if described.odd else (None, None)
    *batch, rows, columns = described.shape
    *step, lead, inner = described.strides
    if (columns > 1 and inner != 1) or (rows > 1 and lead < columns):
        return None
    lead = lead if rows > 1 else columns
    if batch and batch[0] > 1 and step[0] < 0:
        return None
    return lead, step[0] if batch and batch[0] > 1 else None


def _same_kind(arrays: dict[str, Any], given: dict[str, ArrayLayout]) -> None:
    """Raise ``ArgumentError`` unless all arrays are of one library and the two operands have one dtype."""
    (first, one), *others = ((name, array) for name, array in arrays.items() if array is not None)
    for name, other in others:
        if isinstance(one, np.ndarray) != isinstance(other, np.ndarray):
            raise ArgumentError(mixed(first, one, name, other))
    (first, a), (second, b) = given.items()
    if a.dtype != b.dtype:
        typed = to_type(arrays[second], str(known_dtype(a.dtype).numpy()))
        raise ArgumentError(
            f"{first} has dtype {a.dtype}, {second} has dtype {b.dtype}: they must be equal; type {second}.{typed}"
        )


def _check_like(name: str, array: Any, shape: tuple[int, ...], dtype: str) -> None:
    if array is None:
        return
    described = describe(name, array)
    if described.shape != tuple(shape):
        raise ArgumentError(f"{name} has shape {described.shape}, this problem needs {tuple(shape)}")
    if described.dtype != dtype:
        raise ArgumentError(f"{name} has dtype {described.dtype}, this problem needs {dtype}")
