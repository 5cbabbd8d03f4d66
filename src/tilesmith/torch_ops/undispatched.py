"""Operators in the programs that Inductor writes: called as functions, without PyTorch's dispatcher.

The dispatcher takes most of the host time of a call (``benchmarks/host.py``), and has nothing to do there: gradients,
transforms and autocast are parts of the program. Where a dispatch mode or the profiler watches the thread, the operator
is called. Inductor's lowerings are private: where a version of PyTorch has others, its programs call the operators.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import torch

from tilesmith.runtime._runtime import torch_watches

Kernel = Callable[..., torch.Tensor]
_C: Any = torch._C
_profiles: Callable[[], bool] = _C._autograd._profiler_enabled
_LOWERINGS = "torch._inductor.lowering"
_FILTER = 1  # its place among the tensors, and among the arguments
_waiting: dict[Any, str] = {}  # operators that Inductor has not been told of, and the names of their functions
_log = logging.getLogger("tilesmith.compile")


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
    _waiting[operator] = f"torch.ops.tilesmith.{name}_kernel"


def lower_undispatched() -> None:
    """Tell Inductor of the functions, once it is loaded; fake kernels call this, which run before each lowering."""
    while _waiting and _LOWERINGS in sys.modules:
        operator, name = _waiting.popitem()
        try:
            _lower(operator, name, sys.modules[_LOWERINGS])
        except (ImportError, AttributeError) as error:
            _log.info("programs of this PyTorch call %s by the dispatcher: %s", operator, error)


def _lower(operator: Any, name: str, lowering: Any) -> None:
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
            _name_filter(call, ir)
        return result

    lowering.lowerings[operator] = lower


def _name_filter(call: Any, ir: Any) -> None:
    """Write ``w.t()`` for a transposed filter: Inductor's own views do not know the tensor that they are views of.

    A filter that is packed once is found again by that tensor, and by its version.
    """
    view = call.inputs[_FILTER]
    if not isinstance(view, ir.ReinterpretView) or len(view.get_size()) != 2:
        return
    whole = view.data.get_layout()
    turned = [*whole.size[::-1]], [*whole.stride[::-1]]
    if (list(view.get_size()), list(view.get_stride())) != turned or view.get_layout().offset != whole.offset:
        return
    written: Callable[[], list[str]] = call.codegen_args

    def codegen_args() -> list[str]:
        arguments = written()
        arguments[_FILTER] = f"{view.data.codegen_reference()}.t()"
        return arguments

    call.codegen_args = codegen_args
