"""Operators in the programs that Inductor writes: called as functions, without PyTorch's dispatcher.

The dispatcher takes twice the host time of a launch. It has nothing to do there: a compiled program has its gradients,
transforms and autocast behind it. Where a dispatch mode or the profiler watches the thread, the operator is called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from tilesmith.runtime._runtime import torch_watches

Kernel = Callable[..., torch.Tensor]
_C: Any = torch._C
_profiles: Callable[[], bool] = _C._autograd._profiler_enabled
_LOWERINGS = "torch._inductor.lowering"
_names: dict[Any, str] = {}  # of the functions, by the operator's overload
_lowered: set[Any] = set()


def add_undispatched(name: str, kernel: Kernel) -> None:
    """Have programs of Inductor call ``torch.ops.tilesmith.<name>_kernel`` in place of the operator.

    Programs in PyTorch's caches name the function: it is there in every process that has the operator.

    Args:
        name: The operator's.
        kernel: Its kernel, which takes all of its arguments in their order.
    """
    operator = getattr(torch.ops.tilesmith, name).default

    def call(*arguments: Any) -> torch.Tensor:
        if torch_watches() or _profiles():
            return operator(*arguments)  # type: ignore[no-any-return]
        return kernel(*arguments)

    setattr(torch.ops.tilesmith, f"{name}_kernel", call)
    _names[operator] = f"torch.ops.tilesmith.{name}_kernel"


def lower_undispatched() -> None:
    """Tell Inductor of the functions, once it is loaded; fake kernels call this, which run before each lowering."""
    if len(_lowered) == len(_names) or _LOWERINGS not in sys.modules:
        return
    for operator, name in _names.items():
        if operator not in _lowered:
            _lowered.add(operator)
            _lower(operator, name)


def _lower(operator: Any, name: str) -> None:
    lowering: Any = sys.modules[_LOWERINGS]
    from torch._inductor import ir
    from torch._inductor.virtualized import V
    from torch._library.utils import get_layout_constraint_tag

    # What Inductor does of itself with an operator that it does not know.
    constraint = lowering.tag_to_layout_constraint(get_layout_constraint_tag(operator, with_default=True))
    lowering.make_fallback(operator, layout_constraint=constraint, warn=False)
    fall_back = lowering.lowerings[operator]
    schema = operator._schema.arguments

    def lower(*arguments: Any, **named: Any) -> Any:
        whole = [
            arguments[place] if place < len(arguments) else named.get(each.name, each.default_value)
            for place, each in enumerate(schema)
        ]
        result = fall_back(*whole)
        if not V.graph.cpp_wrapper:  # programs in C++ know operators alone
            call = result.data.data
            if isinstance(call, ir.MultiOutput):  # takes the call's result
                call = call.inputs[0]
            call.set_python_kernel_name(name)
            _turn_in_words(call)
        return result

    lowering.lowerings[operator] = lower


def _turn_in_words(call: Any) -> None:
    """Write ``w.t()`` for a transposed filter: Inductor's own views do not say what they are views of.

    A filter that is packed once is known by the tensor that it is a view of, and by that tensor's version.
    """
    from torch._inductor import ir

    place = 1  # of the filter, among the tensors and among the arguments
    view = call.inputs[place]
    if not isinstance(view, ir.ReinterpretView) or len(view.get_size()) != 2:
        return
    whole = view.data.get_layout()
    turned = [*whole.size[::-1]], [*whole.stride[::-1]]
    if (list(view.get_size()), list(view.get_stride())) != turned or view.get_layout().offset != whole.offset:
        return
    written: Callable[[], list[str]] = call.codegen_args

    def codegen_args() -> list[str]:
        arguments = written()
        arguments[place] = f"{view.data.codegen_reference()}.t()"
        return arguments

    call.codegen_args = codegen_args
