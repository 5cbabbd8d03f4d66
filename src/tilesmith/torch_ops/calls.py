"""``tilesmith.conv`` and ``tilesmith.gemm`` of PyTorch's tensors: the operators, or a shorter way to the same result.

Where something records or watches the thread (a trace, a mode, a transform, a profiler, a subclass of tensors), the
operator is called. Where only gradients are recorded, the operator's function of autograd is called without the
dispatcher. Elsewhere a call is a launch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any

import torch
from torch.utils._device import DeviceContext

from tilesmith.dispatch import eager, kept_calls
from tilesmith.errors import ArgumentError
from tilesmith.runtime._runtime import torch_settings, torch_watches
from tilesmith.runtime.torch_rules import why_watched
from tilesmith.torch_ops import gemm as _gemm
from tilesmith.torch_ops.arguments import PLAIN_TYPES, ConvArguments, GemmArguments, is_batched
from tilesmith.torch_ops.forms import ConvForm, conv_form
from tilesmith.torch_ops.library import as_autocast
from tilesmith.torch_ops.recording import record, recorded_launch, unwatched

__all__ = ["conv", "gemm", "grouped_gemm", "scaled_gemm"]

_C: Any = torch._C
_LIMIT = 4096
_forms: dict[Hashable, tuple[ConvForm, ConvArguments]] = {}
# One for each plan, not for each filter: some models make their filters anew at each step.
_recorded_launch = lru_cache(_LIMIT)(recorded_launch)
_recorded_product = lru_cache(_LIMIT)(_gemm.recorded_product)
eager.plain_types.update(PLAIN_TYPES)
eager.is_traced = torch.compiler.is_dynamo_compiling
eager.is_recording = _C.is_grad_enabled

Arrays = tuple[Any, ...]
Options = tuple[Any, ...]


# --- what a call needs ------------------------------------------------------------------------------------------------


def _is_seen(arrays: Arrays) -> bool:
    """Whether an operator must be called: for a trace, a mode, a transform, or what type or device of tensors needs."""
    for each in arrays:
        if type(each) in PLAIN_TYPES:
            if is_batched(each):
                return True
        elif hasattr(type(each), "__torch_function__"):
            return True
    if all(each is None or getattr(each, "is_meta", False) for each in arrays):
        return True
    if not torch_watches():
        return False
    functions = torch.overrides._get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return any(type(mode) is not DeviceContext for mode in functions) or bool(why_watched(arrays))


def _is_recorded(arrays: Arrays) -> bool:
    """Whether autograd records the call. Arrays of two libraries are refused first."""
    if not _C.is_grad_enabled() or not any(getattr(each, "requires_grad", False) for each in arrays):
        return False
    tensors = [isinstance(each, torch.Tensor) for each in arrays if each is not None]
    if not all(tensors):
        raise ArgumentError("some arrays are PyTorch tensors, others are not: give one kind")
    return True


def _lacks_batch(x: Any, w: Any, options: Options) -> bool:
    tensors = isinstance(x, torch.Tensor) and isinstance(w, torch.Tensor)
    return tensors and x.dim() == w.dim() - 1 and w.dim() in (3, 4, 5) and not any(options[6:10])


def _as_set(arrays: Arrays) -> Arrays:
    """The arrays as ``torch.autocast`` converts the operands of convolutions and products."""
    device = next((each.device.type for each in arrays if isinstance(each, torch.Tensor)), "")
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return arrays
    return tuple(as_autocast(arrays, device))


# --- conv -------------------------------------------------------------------------------------------------------------


def conv(arrays: Arrays, options: Options, quick: tuple[Any, ...] | None) -> Any:
    """``tilesmith.conv`` of ``x, w, b, residual`` with all of its options in order."""
    x, w, *_ = arrays
    if torch.compiler.is_dynamo_compiling() or _is_seen(arrays):
        return _formed(conv_form(options, *_sizes(x, w, options)), None, arrays)
    if torch_settings():
        arrays, quick = _as_set(arrays), None
        options = (*options[:-1], torch.are_deterministic_algorithms_enabled())
        if _C._autograd._profiler_enabled():
            return _formed(conv_form(options, *_sizes(x, w, options)), None, arrays)
    recorded = _is_recorded(arrays)
    if recorded or _lacks_batch(x, w, options):
        form, arguments = _known_form(options, x, w)
        emptied = kept_calls.emptied
        y = _formed(form, arguments, arrays)
        plain = recorded and form.is_plain and arrays[3] is None and type(options[1]) is not str
        if plain and emptied == kept_calls.emptied:  # else another thread has emptied the tables since
            _keep(x, w, arrays[2], options, arguments)
        return y
    return eager.run_conv(arrays, options, quick)


def _keep(x: torch.Tensor, w: torch.Tensor, b: Any, options: Options, arguments: ConvArguments) -> None:
    """Make the next call with this filter and these options a short one."""
    bound = arguments.bound_for(w, b)
    if bound is not None and arguments.before is arguments:
        call = _recorded_launch(unwatched(bound), arguments)
    else:
        call = partial(_recorded_conv, arguments)
    with contextlib.suppress(TypeError):  # a list among the options
        kept_calls.keep_recorded((id(w), b is None, options), x.dim(), call)


def _recorded_conv(arguments: ConvArguments, x: Any, w: Any, b: Any = None) -> torch.Tensor:
    return record(None, x, w, b, None, arguments)


def _sizes(x: Any, w: Any, options: Options) -> tuple[tuple[int, int] | None, tuple[int, ...]]:
    """The values on which the form of a call depends, beside its options."""
    if hasattr(x, "node"):  # of a symbolic trace
        return None, ()
    return (x.dim(), w.dim()), tuple(w.shape) if isinstance(options[1], str) else ()


def _known_form(options: Options, x: torch.Tensor, w: torch.Tensor) -> tuple[ConvForm, ConvArguments]:
    sizes = _sizes(x, w, options)
    key = (options, sizes)
    try:
        found = _forms.get(key)
    except TypeError:  # a list among the options
        form = conv_form(options, *sizes)
        return form, ConvArguments.of(*form.options)
    if found is None:
        form = conv_form(options, *sizes)
        if len(_forms) >= _LIMIT:
            _forms.clear()
        found = _forms[key] = form, ConvArguments.of(*form.options)
    return found


for _empty in (_forms.clear, _recorded_launch.cache_clear, _recorded_product.cache_clear):
    kept_calls.when_forgotten(_empty)


def _formed(form: ConvForm, arguments: ConvArguments | None, arrays: Arrays) -> Any:
    """The call in the operator's form; ``arguments`` are given where only gradients are recorded."""
    x, w, b, z = arrays
    if not form.batched:
        x, z = x.unsqueeze(0), None if z is None else z.unsqueeze(0)
    x = x if form.x is None else x.permute(form.x)
    w = w if form.w is None else w.permute(form.w)
    z = z if form.z is None or z is None else z.permute(form.z)
    if arguments is None:
        y = torch.ops.tilesmith.convolution.default(x, w, b, z, *form.options)
    elif _is_recorded((x, w, b, z)):
        y = record(None, x, w, b, z, arguments)
    else:
        y = arguments.run(x, w, b, z)
    y = y if form.y is None else y.permute(form.y)
    y = y.contiguous() if form.dense else y
    return y if form.batched else y.squeeze(0)


# --- grouped_gemm -----------------------------------------------------------------------------------------------------


def grouped_gemm(a: Any, b: Any, group_ends: Any, *options: Any) -> Any:
    """``tilesmith.grouped_gemm`` with all of its options in order: the operator."""
    return torch.ops.tilesmith.grouped_gemm.default(a, b, group_ends, *options)


# --- scaled_gemm ------------------------------------------------------------------------------------------------------


def scaled_gemm(a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any, *options: Any) -> Any:
    """``tilesmith.scaled_gemm`` with all of its options in order: the operator."""
    return torch.ops.tilesmith.scaled_gemm.default(a, b, a_scale, b_scale, bias, *options)


# --- gemm -------------------------------------------------------------------------------------------------------------


def gemm(arrays: Arrays, options: Options, quick: tuple[Any, ...] | None) -> Any:
    """``tilesmith.gemm`` of ``a, b, c, bias, residual`` with all of its options in order."""
    if torch.compiler.is_dynamo_compiling() or _is_seen(arrays):
        return _product(arrays, options, torch.ops.tilesmith.gemm.default)
    if torch_settings():
        arrays, quick = _as_set(arrays), None
        options = (*options[:-1], torch.are_deterministic_algorithms_enabled())
        if _C._autograd._profiler_enabled():
            return _product(arrays, options, torch.ops.tilesmith.gemm.default)
    if _is_recorded(arrays):
        emptied = kept_calls.emptied
        y = _product(arrays, options, _recorded_gemm)
        if all(each is None for each in arrays[2:]) and emptied == kept_calls.emptied:
            _keep_product(arrays, options)
        return y
    return eager.run_gemm(arrays, options, quick)


def _keep_product(arrays: Arrays, options: Options) -> None:
    """Make the next call with this right matrix and these options a short one, if it is a product alone."""
    alpha, beta, trans_a, trans_b, activation, _, _, _, threads, mode, acc_dtype, deterministic = options
    if (alpha, beta, activation) != (1, 0, "none") or deterministic:
        return
    with torch.no_grad():
        bound = eager.find_gemm(arrays, *options).bound
    if bound is None:
        return
    plain = GemmArguments.of("none", 0.01, 0.0, 6.0, False, acc_dtype, mode, threads)
    call = _recorded_product(unwatched(bound), plain, bool(trans_a), bool(trans_b))
    kept_calls.keep_recorded((id(arrays[1]), True, options), arrays[0].dim(), call)


def _recorded_gemm(a: Any, b: Any, bias: Any, residual: Any, *options: Any) -> Any:
    return record(None, a, b, bias, residual, GemmArguments.of(*options))


def _product(arrays: Arrays, options: Options, multiply: Callable[..., Any]) -> Any:
    """The call by ``multiply``, which takes what the operator takes."""
    a, b, c, bias, residual = arrays
    alpha, beta, trans_a, trans_b, activation, slope, low, high, threads, mode, acc_dtype, _ = options
    a, b = a.mT if trans_a else a, b.mT if trans_b else b
    if beta != 0:
        if c is None:
            raise ArgumentError(f"beta is {beta}, and no c is given; pass c, or beta=0")
        added = c if beta == 1 else c * beta
        residual = added if residual is None else residual + added
    if alpha != 1:
        if not a.is_floating_point():
            raise ArgumentError(
                f"alpha is {alpha}, and a holds integers: the operator has no factor; use torch.no_grad()"
            )
        a = a * alpha
    return multiply(a, b, bias, residual, activation, slope, low, high, False, acc_dtype, mode, threads)
