"""Operators in the programs that Inductor writes: called as functions, without PyTorch's dispatcher.

The dispatcher takes most of the host time of a call (``benchmarks/host.py``), and has nothing to do there: gradients,
transforms and autocast are parts of the program. Where a dispatch mode or the profiler watches the thread, the operator
is called. Inductor's lowerings are private: where a version of PyTorch has others, its programs call the operators.

A result is written over the residual where the kernel can do that and nobody reads the residual later, and into its
part of a concatenation where the kernel can do that (``placed``): a program then touches less memory, and holds less.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import torch

from tilesmith.runtime._runtime import torch_watches
from tilesmith.runtime.torch_rules import ONLY_WATCHES, why_watched
from tilesmith.torch_ops.placed import lower_concatenations, lower_placed, place_of

Kernel = Callable[..., torch.Tensor]
_C: Any = torch._C
_profiles: Callable[[], bool] = _C._autograd._profiler_enabled
_LOWERINGS = "torch._inductor.lowering"
_FILTER, _RESIDUAL = 1, 3  # their places among the arguments; the filter's among the tensors, too
_IN_PLACE = "tilesmith_in_place"
_waiting: dict[Any, str] = {}  # operators that Inductor has not been told of, and the names of their functions
_log = logging.getLogger("tilesmith.compile")


def add_undispatched(name: str, kernel: Kernel, into: Callable[..., None]) -> None:
    """Have programs of Inductor call ``torch.ops.tilesmith.<name>_kernel`` in place of the operator.

    Programs in PyTorch's caches name the function: it is there in every process that has the operator.

    Args:
        name: The operator's.
        kernel: Its kernel, which takes all of its arguments in their order.
        into: The same, which writes the result into its first argument. Programs call it as
            ``torch.ops.tilesmith.<name>_kernel_into(*arguments, out=memory)``, and as
            ``torch.ops.tilesmith.<name>_kernel_in_place(*arguments)`` to write over the residual.
    """
    operator = getattr(torch.ops.tilesmith, name).default

    def call(*arguments: Any) -> torch.Tensor:
        if torch_watches() or _profiles():
            return operator(*arguments)  # type: ignore[no-any-return]
        return kernel(*arguments)

    def call_into(*arguments: Any, out: torch.Tensor) -> None:
        if _profiles() or (torch_watches() and why_watched(arguments)):
            out.copy_(operator(*arguments))
        else:
            into(out, *arguments)

    setattr(torch.ops.tilesmith, f"{name}_kernel", call)
    setattr(torch.ops.tilesmith, f"{name}_kernel_into", call_into)
    setattr(torch.ops.tilesmith, f"{name}_kernel_in_place", lambda *given: call_into(*given, out=given[_RESIDUAL]))
    _waiting[operator] = f"torch.ops.tilesmith.{name}_kernel"


def allow_in_place(node: Any) -> None:
    """Note that the kernel of this call can write its result over the residual."""
    node.meta[_IN_PLACE] = True


def lower_undispatched() -> None:
    """Tell Inductor of the functions, once it is loaded; fake kernels call this, which run before each lowering."""
    while _waiting and _LOWERINGS in sys.modules:
        operator, name = _waiting.popitem()
        try:
            _lower(operator, name, sys.modules[_LOWERINGS])
        except (ImportError, AttributeError) as error:
            _log.info("programs of this PyTorch call %s by the dispatcher: %s", operator, error)


def run_in_first_calls() -> None:
    """Let functions that write into memory run in a program's first call, where PyTorch looks whether operators alias.

    Else that call runs the operators, whose kernels are others: they would be compiled for it alone.
    """
    try:
        from torch._functorch._aot_autograd.runtime_wrappers import _AnalyzeCustomOpInputOutputMode as Looks
    except ImportError:  # PyTorch before 2.12 does not look
        return
    setattr(Looks, ONLY_WATCHES, True)


def _lower(operator: Any, name: str, lowering: Any) -> None:
    from torch._inductor import ir
    from torch._inductor.virtualized import V
    from torch._library.utils import get_layout_constraint_tag

    # What Inductor does of itself with an operator that it does not know.
    constraint = lowering.tag_to_layout_constraint(get_layout_constraint_tag(operator, with_default=True))
    lowering.make_fallback(operator, layout_constraint=constraint, warn=False)
    fall_back, places = lowering.lowerings[operator], lower_concatenations(lowering)
    schema = operator._schema.arguments

    def lower(*arguments: Any, **named: Any) -> Any:
        whole = [
            arguments[place] if place < len(arguments) else named.get(each.name, each.default_value)
            for place, each in enumerate(schema)
        ]
        if not V.graph.cpp_wrapper:  # programs in C++ know operators alone
            if _IN_PLACE in V.graph.current_node.meta and _dies(whole, V.graph, ir):
                return _lower_in_place(operator, f"{name}_in_place", whole, V.graph, ir)
            if places and place_of(V.graph.current_node) is not None:
                placed = lower_placed(operator, f"{name}_into", whole, V.graph, ir)
                _name_filter(placed.data.data, ir)
                return placed
        result = fall_back(*whole)
        # NOTE: Inductor takes a result to be aligned no better than the operands, and no later buffer gets its memory
        # then. Ours is always new memory.
        V.graph.unaligned_buffers.discard(result.get_name())
        if not V.graph.cpp_wrapper:
            call = result.data.data
            if isinstance(call, ir.MultiOutput):  # takes the call's result
                call = call.inputs[0]
            call.set_python_kernel_name(name)
            _name_filter(call, ir)
        return result

    lowering.lowerings[operator] = lower


def _dies(arguments: list[Any], graph: Any, ir: Any) -> bool:
    """Whether the residual is memory of the program's own that lies as the result does and that nobody reads later."""
    node, residual = graph.current_node, arguments[_RESIDUAL]
    if not (isinstance(residual, ir.TensorBox) and isinstance(residual.data, ir.StorageBox)):
        return False
    residual.realize()
    buffer = residual.data.data
    if not isinstance(buffer, ir.ComputedBuffer | ir.MultiOutput) or buffer.get_inputs_that_alias_output():
        return False
    layout, result = buffer.get_layout(), node.meta["val"]
    if not isinstance(layout, ir.FixedLayout):
        return False
    lies = [*layout.size], [*layout.stride], layout.dtype, layout.device
    if lies != ([*result.shape], [*result.stride()], result.dtype, result.device) or layout.offset != 0:
        return False
    if any(_memory_of(each, ir) is buffer for place, each in enumerate(arguments) if place != _RESIDUAL):
        return False
    later = node.next
    while later.op != "root":
        if any(_memory_of(graph.env.get(each), ir) is buffer for each in later.all_input_nodes):
            return False
        later = later.next
    return True


def _memory_of(value: Any, ir: Any) -> Any:
    """The buffer that a lowered value is, or is a view of; None for what has no memory yet, or is no tensor."""
    while isinstance(value, ir.MutableBox | ir.BaseView):
        value = value.data
    return value if isinstance(value, ir.Buffer) else None


def _lower_in_place(operator: Any, name: str, arguments: list[Any], graph: Any, ir: Any) -> Any:
    residual = arguments[_RESIDUAL]
    graph.mark_buffer_mutated(residual.get_name())  # what has read it so far is computed from the old values
    with graph.fake_mode:
        _, tensors, others, unflatten, _ = ir.FallbackKernel.process_kernel(operator, *arguments)
    nowhere = ir.NoneLayout(device=residual.get_device())
    call = ir.FallbackKernel(nowhere, operator, tensors, others, unflatten)
    call.mutation_outputs.append(ir.MutationOutput(nowhere, residual.data.data, call))
    call.set_python_kernel_name(name)
    _name_filter(call, ir)
    return residual


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
