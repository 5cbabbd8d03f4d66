"""Facts that every layer asks for at each call: whether the operators take a tensor, and whether PyTorch watches."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad

from tilesmith import env
from tilesmith.dispatch.kept_calls import when_forgotten
from tilesmith.runtime.torch_rules import ONLY_WATCHES

# Subclasses with operators of their own (DTensor, quantised tensors) stay PyTorch's.
PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor, FunctionalTensor)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_C: Any = torch._C
_ops: Any = torch._ops


def taken(*tensors: torch.Tensor | None) -> bool:
    """Whether the operators compute with these tensors: plain and dense, on one device, of one dtype.

    Under autocast dtypes may differ, as the operators convert them there.
    """
    first = tensors[0]
    assert first is not None
    device, dtype = first.device, first.dtype
    if device.type not in ("cpu", "cuda") or dtype not in DTYPES:
        return False
    for each in tensors:
        if each is not None and (type(each) not in PLAIN or each.layout is not torch.strided or each.device != device):
            return False
        if each is not None and each.dtype is not dtype and not torch.is_autocast_enabled(device.type):
            return False
    return True


def exports_to_onnx() -> bool:
    """Whether a model is being exported to ONNX, which knows PyTorch's operators alone."""
    traced = torch.compiler.is_compiling() or _C._get_tracing_state() is not None
    return traced and torch.onnx.is_in_onnx_export()


def exports() -> bool:
    """Whether a model is being exported."""
    return torch.compiler.is_exporting()


# NOTE: the answer itself is part of the traced program. Dynamo's own is always yes up to PyTorch 2.11: compiled models
# ran our kernels where PyTorch's are faster, and PyTorch's for all linear layers on CPUs.
exports._dynamo_marked_constant = True  # type: ignore[attr-defined]


def find_mode(x: torch.Tensor) -> str | None:
    """The mode in which the kernel for ``x`` is found.

    On a GPU a model takes the untuned choice where no database knows better, unless TILESMITH_FIND_MODE says otherwise:
    to measure a problem beside PyTorch's kernels takes seconds there.
    """
    return "fast" if x.is_cuda and not _mode_is_set else None


def _read_environment() -> None:
    global _mode_is_set
    _mode_is_set = env.FIND_MODE.is_set


_mode_is_set = False
_read_environment()
when_forgotten(_read_environment)


def differentiates_forward() -> bool:
    """Whether tangents may be computed, which the operators refuse."""
    return forward_ad._current_level >= 0


def records_gradients(*tensors: torch.Tensor | None) -> bool:
    """Whether autograd records what is computed of these tensors."""
    return torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)


def is_watched() -> bool:
    """Whether a trace, a transform or a dispatch mode sees the operators that are called now."""
    if _C._get_tracing_state() is not None or _C._functorch.peek_interpreter_stack() is not None:
        return True
    if _C._len_torch_dispatch_stack() == 0:
        return bool(_ops._len_torch_dispatch_stack_pre_dispatch())
    modes: Any = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return not all(getattr(mode, ONLY_WATCHES, False) for mode in modes)
