"""The pass: convolutions, products and gradients become operators of Tilesmith where they are expected to win.

It runs on the graph of the forward and the backward pass together (or of the inference), before Inductor divides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from operator import getitem
from typing import Any

import torch
from torch.fx import Graph, Node

from tilesmith.errors import ProblemError
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.rewrite import Signature
from tilesmith.torch_ops.compile.builder import begin as begin_work
from tilesmith.torch_ops.compile.chains import CONVOLUTION, PRODUCTS, Chain, find_chain
from tilesmith.torch_ops.compile.concats import (
    CONCATENATION,
    goes_into_one,
    is_inference,
    place_in_concatenation,
    placed_problem,
)
from tilesmith.torch_ops.compile.decide import Decider, Decision
from tilesmith.torch_ops.compile.layouts import Layouts
from tilesmith.torch_ops.compile.nodes import Writer, args_of, aten, fake_mode_of, is_noted, is_static, value
from tilesmith.torch_ops.compile.norms import fold_together, joins
from tilesmith.torch_ops.compile.report import Line
from tilesmith.torch_ops.describe import conv_problem, gemm_problem
from tilesmith.torch_ops.placed import allow_place
from tilesmith.torch_ops.results import conv_strides, result_dtype
from tilesmith.torch_ops.undispatched import allow_in_place

BACKWARD = aten.convolution_backward.default
_MODES = ("bwd", "wrw")
# Batch norm is folded although it costs each call: where the result has so many times the filter's elements, or, with
# all layers in one launch, at most so many fewer. To read and write these takes 2 us at 3 TB/s, as a kernel does alone.
_FOLD_RATIO, _FOLD_FEWER = 4, 1_500_000


class Rewriter:
    """Rewrites one graph.

    Args:
        decide: Which problems are ours.
        frozen: True if the filters are constants of the compiled graph.
        begin: Called with each problem that is ours, so that its kernel is compiled while the next ones are decided.
    """

    def __init__(
        self, graph: Graph, decide: Decider, frozen: bool, begin: Callable[[Signature], object] = lambda each: None
    ) -> None:
        self.graph, self.decide, self.frozen, self.begin = graph, decide, frozen, begin
        self.mode = fake_mode_of(graph)
        self.layouts = Layouts(graph, self.mode)
        self.lines: list[Line] = []
        self.inference = is_inference(graph)
        # Results that may be written into a concatenation, and the numbers of their lines.
        self._waiting: list[tuple[Node, int, Decision]] = []

    def run(self) -> None:
        """Rewrite what wins; ``lines`` then says what was done."""
        self.decide.expect(self._first_questions())
        for node in list(self.graph.nodes):
            if node.op != "call_function" or node._erased:
                continue
            self.layouts.visit(node)
            if node.target is CONVOLUTION or node.target in PRODUCTS:
                self._forward(node)
            elif node.target is BACKWARD:
                self._backward(node)
        if not self.frozen:
            fold_together(self.graph, self.mode, begin_work)
        self._place()
        self._settle()
        self.layouts.restore_results()

    def _settle(self) -> None:
        """Residuals that lie otherwise than the results are copied; operands are noted as they lie in the end."""
        for node in list(self.graph.nodes):
            if node.op != "call_function" or getattr(node.target, "namespace", "") != "tilesmith":
                continue
            write = Writer(self.graph, node, self.mode)
            residual = args_of(node)[3] if node.target is torch.ops.tilesmith.convolution.default else None
            if residual is not None and value(residual).stride() != value(node).stride():
                node.update_arg(3, self.layouts.converted(residual))
            if not is_noted(node):
                write.value_again(node)

    # --- forward ------------------------------------------------------------------------------------------------------

    def _forward(self, head: Node) -> None:
        is_conv = head.target is CONVOLUTION
        chain, lasting = self._first_chain(head)
        decision = self._decision(chain, lasting)
        while not decision.ours and chain.taken:  # the kernel may have no epilogue of this kind
            chain = find_chain(head, chain.taken - 1)
            decision = self._decision(chain, lasting)
        problem = decision.signature
        fills = problem is not None and not problem.epilogue.residual and self.inference and goes_into_one(chain.end)
        self._say(head.name, decision, _fused(chain), waits=fills)
        if not decision.ours:
            return
        before, write = value(chain.end), Writer(self.graph, chain.end, self.mode)
        if is_conv and lasting is not None:
            early = Writer(self.graph, head, self.mode)
            for place in (0, 1):
                head.update_arg(place, self.layouts.converted(args_of(head)[place]))
            early.value_again(head)
        new = (_write_conv if is_conv else _write_gemm)(write, chain, _options(chain, self.frozen, self.decide.mode))
        if fills:
            self._waiting.append((new, len(self.lines) - 1, decision))
        if problem is not None and problem.epilogue.residual and self.decide.in_place(decision):
            allow_in_place(args_of(new)[0] if new.target is aten.reshape.default else new)
        chain.end.replace_all_uses_with(new)
        _erase(self.graph, chain.end)
        self.layouts.replaced(new, chain.end, before)

    def _first_chain(self, head: Node) -> tuple[Chain, Any]:
        """The chain that is asked about first, and a convolution's operands if these shall be channels last."""
        chain = find_chain(head)
        lasting = self.layouts.lasting(*args_of(head)[:2]) if head.target is CONVOLUTION else None
        if chain.norm is not None and not (self.frozen or _folding_pays(chain, lasting is None)):
            chain = find_chain(head, 0)
        return chain, lasting

    def _decision(self, chain: Chain, lasting: Any) -> Decision:
        if not is_static(*chain.head.all_input_nodes, chain.head):
            return Decision(False, "its sizes are dynamic")
        return self.decide(partial(_signature, chain, lasting))

    def _first_questions(self) -> Iterator[Callable[[], Signature]]:
        """The problems that will be asked about first, as far as the graph tells before it is rewritten."""
        for node in list(self.graph.nodes):
            if node.target is CONVOLUTION or node.target in PRODUCTS:
                if is_static(*node.all_input_nodes, node):
                    yield partial(_signature, *self._first_chain(node))
            elif node.target is BACKWARD:
                dy, x, w, _, *shape, mask = args_of(node)
                operands = dy, x, w
                if is_static(*operands):
                    tensors = self.layouts.lasting(*operands) or [value(each) for each in operands]
                    wanted = [mode for mode, each in zip(_MODES, mask, strict=False) if each]
                    yield from (partial(_gradient_signature, mode, tensors, shape) for mode in wanted)

    # --- backward -----------------------------------------------------------------------------------------------------

    def _backward(self, node: Node) -> None:
        dy, x, w, bias_sizes, *shape, mask = args_of(node)
        lasting = self.layouts.lasting(dy, x, w)
        tensors, static = lasting or [value(each) for each in (dy, x, w)], is_static(dy, x, w)
        decisions = []
        for index, mode in enumerate(_MODES):
            if not mask[index]:
                decisions.append(Decision(False, "not wanted"))
                continue
            asked = partial(_gradient_signature, mode, tensors, shape)
            decision = self.decide(asked) if static else Decision(False, "its sizes are dynamic")
            self._say(f"{node.name}.{mode}", decision, ())
            decisions.append(decision)
        ours = [each.ours for each in decisions]
        if not any(ours):
            return
        write = Writer(self.graph, node, self.mode)
        if lasting is not None:
            dy, x, w = (self.layouts.converted(each) for each in (dy, x, w))
        found: list[Node | None] = [None, None, None]
        # NOTE: one call for both. Inductor computes an operand that is cheap anew for each call: dy was written twice.
        op = torch.ops.tilesmith.convolution_backward.default
        both = write.call(op, dy, x, w, *shape, [*ours, False], mode=self.decide.mode, like=node)
        for index in (0, 1):
            if ours[index]:
                found[index] = write.call(getitem, both, index, like=node)
        left = [bool(mask[index]) and not ours[index] for index in (0, 1)]
        if any(left):
            theirs = write.call(BACKWARD, dy, x, w, bias_sizes, *shape, [*left, False], like=node)
            for index in (0, 1):
                if left[index]:
                    found[index] = write.call(getitem, theirs, index, like=node)
        if mask[2]:  # a sum that Inductor computes with its neighbours
            axes = [0, *range(2, value(dy).dim())]
            found[2] = write.call(aten.sum.dim_IntList, dy, axes, like=node)
        for user in list(node.users):
            new = found[args_of(user)[1]]
            if new is not None:
                before = value(user)
                user.replace_all_uses_with(new)
                self.layouts.replaced(new, user, before)
            self.graph.erase_node(user)
        self.graph.erase_node(node)

    def _place(self) -> None:
        """Results that go into a concatenation are written there if the same kernel, with the same config, can."""
        found = [(*each, place_in_concatenation(each[0])) for each in self._waiting]
        asked = [
            partial(placed_problem, node, decision.signature, place) if place is not None else None
            for node, _, decision, place in found
        ]
        self.decide.expect(make for make in asked if make is not None)
        for (node, number, decision, place), make in zip(found, asked, strict=True):
            placed = decision if make is None else self.decide(make)
            same = placed.ours and (placed.solver, placed.config) == (decision.solver, decision.config)
            if place is not None and same:
                allow_place(node, place)
                line = self.lines[number]
                self.lines[number] = _line(line.name, placed, (*line.fused, CONCATENATION))
            self._begin(placed if same else decision)

    def _say(self, name: str, decision: Decision, fused: tuple[str, ...], *, waits: bool = False) -> None:
        self.lines.append(_line(name, decision, fused))
        if not waits:
            self._begin(decision)

    def _begin(self, decision: Decision) -> None:
        if decision.ours and decision.signature is not None:
            self.begin(decision.signature)


def _line(name: str, decision: Decision, fused: tuple[str, ...]) -> Line:
    key = decision.signature.key() if decision.signature is not None else ""
    return Line(name, key, decision.ours, decision.reason, decision.solver, decision.time_us, fused)


# --- what a chain asks for --------------------------------------------------------------------------------------------


def _fused(chain: Chain) -> tuple[str, ...]:
    name = chain.activation.activation
    parts = ("batch norm", chain.norm), ("bias", _has_bias(chain)), ("residual", chain.residual)
    return (*(text for text, present in parts if present), *([name] if name != "none" else []))


def _has_bias(chain: Chain) -> bool:
    if chain.head.target is CONVOLUTION:
        return chain.norm is not None or args_of(chain.head)[2] is not None
    return chain.bias is not None or _is_bias(chain.head)


def _folding_pays(chain: Chain, as_it_lies: bool) -> bool:
    """Folding reads and writes the filter at each call, and saves reading and writing the result."""
    if not is_static(chain.head):
        return False
    filter_, result = value(args_of(chain.head)[1]).numel(), value(chain.head).numel()
    if as_it_lies and joins(chain):
        return bool(filter_ - result <= _FOLD_FEWER)
    return bool(result >= _FOLD_RATIO * filter_)


def _epilogue(chain: Chain) -> Epilogue:
    return replace(chain.activation, bias=_has_bias(chain), residual=chain.residual is not None)


def _signature(chain: Chain, lasting: Any) -> Signature:
    """The problem of a chain; ``lasting``: a convolution's operands where they shall be channels last."""
    ours, theirs = result_dtype(value(_operands(chain.head)[1])), value(chain.head).dtype
    if ours != theirs:  # sums of int8 wrap around in PyTorch
        raise ProblemError(f"the result is {ours}, PyTorch has {theirs}")
    if chain.head.target is not CONVOLUTION:
        return _gemm_signature(chain)
    x, w = lasting or (value(each) for each in args_of(chain.head)[:2])
    _, _, _, stride, padding, dilation, transposed, output_padding, groups = args_of(chain.head)
    shape = tuple(value(chain.head).shape)
    y = x.new_empty_strided(shape, conv_strides(x, w, shape))
    signature = conv_problem(
        "fwd", x, w, y, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=groups,
    )  # fmt: skip
    return replace(signature, epilogue=_epilogue(chain))


def _gradient_signature(mode: str, tensors: Any, shape: Any) -> Signature:
    """The problem of a gradient of the input (``"bwd"``) or of the filter (``"wrw"``)."""
    dy, x, w = tensors
    stride, padding, dilation, transposed, output_padding, groups = shape
    return conv_problem(
        mode, x, w, dy, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
        output_padding=output_padding, groups=groups,
    )  # fmt: skip


def _gemm_signature(chain: Chain) -> Signature:
    added, a, b = _operands(chain.head)
    if added is not None:
        alpha, beta = chain.head.kwargs.get("alpha", 1), chain.head.kwargs.get("beta", 1)
        if alpha != 1 or beta != 1:
            raise ProblemError(f"a product with alpha = {alpha} and beta = {beta}")
        if not _is_bias(chain.head) and (value(added).shape != value(chain.head).shape or chain.residual is not None):
            raise ProblemError(f"a {tuple(value(added).shape)} that is spread over the result")
    epilogue = _epilogue(chain)
    if added is not None and not _is_bias(chain.head):
        epilogue = replace(epilogue, residual=True)
    return replace(gemm_problem(value(a), value(b)), epilogue=epilogue)


def _operands(head: Node) -> tuple[Any, Any, Any]:
    """The addend of a product, and the matrices; of a convolution None and its arguments."""
    added = args_of(head)[0] if head.target in (aten.addmm.default, aten.baddbmm.default) else None
    return (added, *(args_of(head) if added is None else args_of(head)[1:]))


def _is_bias(head: Node) -> bool:
    if head.target is not aten.addmm.default:
        return False
    added, result = value(args_of(head)[0]), value(head)
    return bool(added.dim() == 1 and added.shape[0] == result.shape[-1])


# --- writing ----------------------------------------------------------------------------------------------------------


def _options(chain: Chain, frozen: bool, mode: str) -> dict[str, Any]:
    """Keyword arguments of the operators, those alone that are not their defaults."""
    act = chain.activation
    options: dict[str, Any] = {"activation": act.activation, "mode": mode}
    if act.activation == "leaky_relu":
        options["slope"] = act.slope
    if act.activation == "clamp":
        options |= {"low": act.low, "high": act.high}
    return {**options, "frozen": True} if frozen else options


def _write_conv(write: Writer, chain: Chain, options: dict[str, Any]) -> Node:
    x, w, b, *shape = args_of(chain.head)
    if chain.norm is not None:
        w, b = (_folded_once if options.get("frozen") or joins(chain) else _folded)(write, chain, w, b)
    dtype = value(chain.head).dtype
    if b is not None and value(b).dtype != dtype:
        b = write.cast(b, dtype)
    op = torch.ops.tilesmith.convolution.default
    return write.call(op, x, w, b, chain.residual, *shape, like=chain.end, **options)


def _folded_once(write: Writer, chain: Chain, w: Node, b: Node | None) -> tuple[Node, Node]:
    """Filter and bias with the batch norm inside, where all of them are constants or inputs: one node each."""
    assert chain.norm is not None
    _, gamma, beta, mean, variance, _, eps = args_of(chain.norm)
    wide, axis = torch.promote_types(value(w).dtype, torch.float32), 1 if args_of(chain.head)[6] else 0
    filter_ = write.call(torch.ops.tilesmith.folded_filter.default, w, variance, gamma, eps, axis)
    op = torch.ops.tilesmith.folded_bias.default
    return filter_, write.call(op, b, mean, variance, gamma, beta, eps, wide, value(chain.head).dtype)


def _folded(write: Writer, chain: Chain, w: Node, b: Node | None) -> tuple[Node, Node]:
    """Filter and bias with the batch norm inside, computed in fp32 or better."""
    assert chain.norm is not None
    _, gamma, beta, mean, variance, _, eps = args_of(chain.norm)
    dtype, wide = value(w).dtype, torch.promote_types(value(w).dtype, torch.float32)
    scale = write.call(aten.rsqrt.default, write.call(aten.add.Tensor, write.cast(variance, wide), eps))
    if gamma is not None:
        scale = write.call(aten.mul.Tensor, scale, write.cast(gamma, wide))
    axis = 1 if args_of(chain.head)[6] else 0
    spread = [1] * value(w).dim()
    spread[axis] = value(scale).shape[0]
    filter_ = write.call(aten.mul.Tensor, write.cast(w, wide), write.call(aten.view.default, scale, spread))
    shifted = write.call(aten.neg.default, write.cast(mean, wide))
    if b is not None:
        shifted = write.call(aten.sub.Tensor, write.cast(b, wide), write.cast(mean, wide))
    bias = write.call(aten.mul.Tensor, shifted, scale)
    if beta is not None:
        bias = write.call(aten.add.Tensor, bias, write.cast(beta, wide))
    return write.cast(filter_, dtype), write.cast(bias, value(chain.head).dtype)


def _write_gemm(write: Writer, chain: Chain, options: dict[str, Any]) -> Node:
    added, a, b = _operands(chain.head)
    bias, residual = chain.bias, chain.residual
    if added is not None and _is_bias(chain.head):
        bias = added
    elif added is not None:
        residual = added
    shape = value(chain.head).shape
    if residual is not None and value(residual).shape != shape:
        residual = write.call(aten.reshape.default, residual, list(shape))
    op = torch.ops.tilesmith.gemm.default
    new = write.call(op, a, b, bias, residual, like=chain.end, **options)
    if chain.views:
        new = write.call(aten.reshape.default, new, list(value(chain.end).shape), like=chain.end)
    return new


def _erase(graph: Graph, node: Node) -> None:
    """Erase a node without users, and what only it used."""
    inputs = list(node.all_input_nodes)
    graph.erase_node(node)
    for each in inputs:
        if each.op == "call_function" and not each.users:
            _erase(graph, each)
