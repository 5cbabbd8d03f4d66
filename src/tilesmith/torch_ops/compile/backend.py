"""``torch.compile(model, backend="tilesmith")``: Inductor with Tilesmith's kernels inside."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule

from tilesmith.dispatch.background import ahead
from tilesmith.dispatch.locations import target_of
from tilesmith.problems.keys import parse_key
from tilesmith.torch_ops.compile.builder import prepare_kernels
from tilesmith.torch_ops.compile.decide import Decider, find_mode
from tilesmith.torch_ops.compile.freezing import freeze_inputs
from tilesmith.torch_ops.compile.identity import identity_of
from tilesmith.torch_ops.compile.kept import Kept, alone, keep, name_of, new_mark, recall, signatures_of
from tilesmith.torch_ops.compile.leftovers import reduced_decompositions, write_out
from tilesmith.torch_ops.compile.loops import loops_together
from tilesmith.torch_ops.compile.nodes import value
from tilesmith.torch_ops.compile.options import Options, patches_of, read_options
from tilesmith.torch_ops.compile.probes import begin_probes
from tilesmith.torch_ops.compile.report import Line, add_report
from tilesmith.torch_ops.compile.rewrite import Rewriter
from tilesmith.torch_ops.compile.tuning import tune_graph
from tilesmith.torch_ops.undispatched import run_in_first_calls

_OBJECTS = 100_000  # new ones between two looks for garbage
_log = logging.getLogger("tilesmith.compile")


def backend(
    gm: GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Compile a graph of Dynamo; ``torch.compile(model, backend="tilesmith")`` calls this.

    Args:
        gm: Dynamo's graph.
        example_inputs: Its inputs.
        mode: ``"default"``, ``"reduce-overhead"``, ``"max-autotune"`` or ``"max-autotune-no-cudagraphs"``; None:
            ``"default"``.
        options: ``freeze``, ``tune``, ``ours``, ``inductor`` and ``mode``; see ``docs/guide/compile.md``.

    Returns:
        The compiled graph.

    Raises:
        ArgumentError: A mode or an option does not exist, or has a value outside its rule.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    asked = read_options(mode, options)
    if _only_device(example_inputs) == "cpu" and config.cpp.vec_isa_ok is None:
        begin_probes()
    run_in_first_calls()
    patches, decompositions, identity = patches_of(asked), reduced_decompositions(), identity_of(asked)

    def compile_(graph: GraphModule, inputs: Sequence[Any], frozen: bool) -> Callable[..., Any]:
        name = name_of(graph, inputs, identity)
        kept, device = _still_decided(recall(name), inputs, asked, frozen), _only_device(inputs)
        if kept is not None and device is not None:
            prepare_kernels(signatures_of(kept.lines), device, find_mode(), frozen)
        elif device not in (None, "cpu") and kept is None and asked.ours != "never":
            ahead.start(target_of(None, None, device), find_mode())
        own = TilesmithPass(asked, identity, name, kept.mark if kept else new_mark())
        settings = {**patches, "freezing": frozen, "joint_custom_post_pass": own}
        with loops_together():
            call: Callable[..., Any] = compile_fx(graph, inputs, config_patches=settings, decompositions=decompositions)
        lines = tuple(own.lines) if own.has_run else kept.lines if kept is not None else _passed_by()
        if lines:
            _log.info("%s", add_report(lines, remembered=not own.has_run))
        return call

    frozen = config.freezing if asked.freeze is None else asked.freeze
    with garbage_left():
        if frozen and not torch.is_grad_enabled():
            return freeze_inputs(gm, example_inputs, compile_)
        return compile_(gm, example_inputs, False)


@contextmanager
def garbage_left() -> Iterator[None]:
    """Look for garbage seldom: a graph's objects live until it is compiled, and looking through them is in vain.

    NOTE: 7% of the time of a compilation (MobileNetV3) by Python's own thresholds.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _OBJECTS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _passed_by() -> tuple[Line, ...]:
    """The report of a graph that PyTorch has compiled without our pass, and without a decision of an earlier process.

    Inductor's configuration belongs to the whole process: ``disabled_passes`` may name the pass, and a thread that
    compiles a backward pass meanwhile sets another one in its place.
    """
    _log.warning("PyTorch has compiled a graph without Tilesmith's pass: no kernel of Tilesmith runs in it")
    return (Line("graph", "", False, "PyTorch has compiled it without Tilesmith's pass"),)


def _still_decided(kept: Kept | None, inputs: Sequence[Any], options: Options, frozen: bool) -> Kept | None:
    """The decision of an earlier process, if this process decides the same."""
    if kept is None:
        return None
    device = _only_device(inputs)
    if not kept.lines or device is None:
        return kept
    decide = Decider(device, options.ours, packed=frozen)
    for line in kept.lines:
        if line.problem and decide(partial(parse_key, line.problem)).ours != line.ours:
            return None
    return kept


class TilesmithPass(CustomGraphPass):  # type: ignore[misc]
    """The pass as Inductor runs it, with a name of all that its decisions depend on for Inductor's caches.

    Args:
        options: The user's.
        identity: Of all that decisions depend on beside the databases.
        name: Of the file that keeps the decisions.
        mark: Of the compiled graph in PyTorch's caches.
    """

    def __init__(self, options: Options, identity: str, name: str, mark: str) -> None:
        self.options, self.identity, self.name, self.mark = options, identity, name, mark
        self.lines: list[Line] = []
        self.has_run = False

    def __call__(self, graph: Graph) -> None:
        from torch._inductor import config

        self.has_run = True
        device = device_of(graph)
        if device is not None and self.options.ours != "never":
            frozen = bool(config.freezing) and not torch.is_grad_enabled()
            with alone(self.name, self.options.tune_seconds) as pinned:
                if self.options.tune_seconds and not pinned:
                    tune_graph(graph, device, self.options.tune_seconds, frozen)
                decide = Decider(device, self.options.ours, pinned, packed=frozen)
                rewriter = Rewriter(
                    graph, decide, frozen, lambda each: prepare_kernels((each,), device, decide.mode, frozen)
                )
                rewriter.run()
                self.lines += rewriter.lines
                keep(self.name, Kept(self.mark, tuple(self.lines)))
        write_out(graph)
        graph.lint()

    def uuid(self) -> Any:
        return f"{self.identity} {self.mark}"


def device_of(graph: Graph) -> str | None:
    """``cpu`` or ``cuda:N`` if all tensors of the graph are on one such device."""
    return _only_device([value(node) for node in graph.nodes])


def _only_device(tensors: Sequence[Any]) -> str | None:
    found = {str(tensor.device) for tensor in tensors if isinstance(tensor, torch.Tensor)}
    devices = {name for name in found if name.startswith("cuda")} or found & {"cpu"}
    return next(iter(devices)) if len(devices) == 1 else None
