"""PyTorch's rules for a call outside its operators: it is not recorded, and it reports the tensors that it has written.

The C binding calls this for PyTorch's tensors alone. It comes here only when something may be watching the thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tilesmith.errors import ArgumentError

_WRAP = 'wrap the call in an operator of your own: @torch.library.custom_op("mine::conv", mutates_args=())'
# A dispatch mode with this attribute, true, lets Tilesmith's calls run: it records nothing that is run again.
ONLY_WATCHES = "tilesmith_may_run"

_Function = TypeVar("_Function", bound=Callable[..., Any])


def between_graphs(function: _Function) -> _Function:
    """Have ``torch.compile`` call ``function`` between its graphs, as ``torch.compiler.disable`` does.

    That would import PyTorch; the attributes that it leaves are all that is read.
    """
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    function._torchdynamo_disable_msg = f"a Tilesmith call has no graph; {_WRAP}"  # type: ignore[attr-defined]
    return function


def refuse_watched(tensors: Sequence[Any]) -> None:
    """Raise ``ArgumentError`` inside a trace, a dispatch mode, a transform of ``torch.func``, or for a tangent."""
    why = why_watched(tensors)
    if why:
        raise ArgumentError(why)


def why_watched(tensors: Sequence[Any]) -> str:
    """Why a launch must not run here: what watches it, and what to type; empty if nothing does.

    Each of them sees PyTorch's operators alone. Of a launch it would see how the result is allocated and not how it is
    computed: a recorded program would return uninitialised memory.
    """
    for tensor in tensors:
        if type(tensor).__module__ == "torch.fx.proxy":
            return f"torch.fx.symbolic_trace cannot record a Tilesmith call; {_WRAP}"
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if torch.jit.is_tracing():
        return f"torch.jit.trace cannot record a Tilesmith call; {_WRAP}"
    mode = _recording_mode(torch)
    if mode:
        return f"the dispatch mode {mode} cannot record a Tilesmith call; {_WRAP}"
    functorch = getattr(torch._C, "_functorch", None)
    level = functorch.peek_interpreter_stack() if functorch else None
    if level is not None:
        name = str(level.key()).rpartition(".")[2].lower()
        return (
            f"torch.func.{name} cannot transform a Tilesmith call; call Tilesmith outside of it "
            "(for vmap: with the batch as the first axis of x)"
        )
    if _has_tangent(tensors):
        return (
            "a tensor has a tangent, whose derivative this call does not compute; "
            "pass torch.autograd.forward_ad.unpack_dual(tensor).primal"
        )
    return ""


def _recording_mode(torch: Any) -> str:
    """The name of a dispatch mode that is active and does not let Tilesmith run; empty if there is none."""
    stack = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    for mode in stack:
        if not getattr(mode, ONLY_WATCHES, False):
            return type(mode).__name__
    ahead = getattr(torch._ops, "_len_torch_dispatch_stack_pre_dispatch", None)
    return "of make_fx(pre_dispatch=True)" if ahead is not None and ahead() else ""


def _has_tangent(tensors: Sequence[Any]) -> bool:
    forward_ad = sys.modules["torch.autograd.forward_ad"]
    if forward_ad._current_level < 0:
        return False
    return any(is_tensor(each) and forward_ad.unpack_dual(each).tangent is not None for each in tensors)


def refuse_own_operators(name: str, tensor: Any) -> None:
    """Raise ``ArgumentError`` for a subclass of tensors that computes its operators itself, as fake tensors do."""
    own = getattr(type(tensor), "__torch_dispatch__", None)
    if own is None or own is sys.modules["torch"]._C._disabled_torch_dispatch_impl:
        return
    kind = type(tensor).__name__
    raise ArgumentError(f"{name} is a {kind}, which has operators of its own; pass a plain tensor, or {_WRAP}")


def is_tensor(given: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.Tensor)


def refuse_result(out: Any) -> None:
    """Raise ``ArgumentError`` if a gradient is recorded for ``out``: what a call writes there has none."""
    if out.requires_grad and sys.modules["torch"].is_grad_enabled():
        leaf = out.is_leaf and not out._is_view()
        what = "is a leaf that requires a gradient" if leaf else "requires a gradient, or is a view of a leaf that does"
        raise ArgumentError(f"out {what}, and this call records none; use torch.no_grad() or out.detach()")


def note_written(out: Any) -> None:
    """Tell autograd that ``out`` was written: a backward pass that has saved it raises, as after ``out.zero_()``."""
    sys.modules["torch"].autograd.graph.increment_version(out)


def capture_of_thread() -> Callable[[], bool] | None:
    """Whether PyTorch's current stream is still captured, as a function for any thread; None if it is not captured."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or not torch.cuda.is_current_stream_capturing():
        return None
    stream = torch.cuda.current_stream()

    def is_capturing() -> bool:
        with torch.cuda.stream(stream):
            return bool(torch.cuda.is_current_stream_capturing())

    return is_capturing
