"""``torch.compile(model, backend="tilesmith")``: Inductor with Tilesmith's kernels inside."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule

import tilesmith
import tilesmith.torch_ops  # registers the operators
from tilesmith import env
from tilesmith.db.state import state_of
from tilesmith.dispatch.locations import DatabasePaths, named_databases
from tilesmith.torch_ops.compile.builder import prepare_kernels
from tilesmith.torch_ops.compile.decide import Decider
from tilesmith.torch_ops.compile.freezing import freeze_inputs
from tilesmith.torch_ops.compile.leftovers import reduced_decompositions, write_out
from tilesmith.torch_ops.compile.nodes import value
from tilesmith.torch_ops.compile.options import Options, patches_of, read_options
from tilesmith.torch_ops.compile.report import add_report
from tilesmith.torch_ops.compile.rewrite import Rewriter

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
        options: ``freeze``, ``tune``, ``ours`` and ``inductor``; see ``docs/guide/compile.md``.

    Returns:
        The compiled graph.

    Raises:
        ArgumentError: A mode or an option does not exist, or has a value outside its rule.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    asked = read_options(mode, options)
    patches = patches_of(asked)
    patches["joint_custom_post_pass"] = TilesmithPass(asked)
    decompositions = reduced_decompositions()

    def compile_(graph: GraphModule, inputs: Sequence[Any], frozen: bool) -> Callable[..., Any]:
        settings = {**patches, "freezing": frozen}
        return compile_fx(graph, inputs, config_patches=settings, decompositions=decompositions)  # type: ignore[no-any-return]

    frozen = config.freezing if asked.freeze is None else asked.freeze
    if frozen and not torch.is_grad_enabled():
        return freeze_inputs(gm, example_inputs, compile_)
    return compile_(gm, example_inputs, False)


class TilesmithPass(CustomGraphPass):  # type: ignore[misc]
    """The pass as Inductor runs it, with a name of all that its decisions depend on for Inductor's caches."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def __call__(self, graph: Graph) -> None:
        from torch._inductor import config

        device = device_of(graph)
        if device is not None and self.options.ours != "never":
            rewriter = Rewriter(graph, Decider(device, self.options.ours), bool(config.freezing) and _in_inference())
            rewriter.run()
            if rewriter.lines:
                report = add_report(tuple(rewriter.lines))
                _log.info("%s", report)
                prepare_kernels(rewriter.signatures, device)
        write_out(graph)
        graph.lint()

    def uuid(self) -> Any:
        return identity(self.options)


def _in_inference() -> bool:
    return not torch.is_grad_enabled()


def device_of(graph: Graph) -> str | None:
    """``cpu`` or ``cuda:N`` if all tensors of the graph are on one such device."""
    found = {
        str(tensor.device) for node in graph.nodes if isinstance(tensor := value(node), torch.Tensor)
    }  # fmt: skip
    devices = {name for name in found if name.startswith("cuda")} or found & {"cpu"}
    return next(iter(devices)) if len(devices) == 1 else None


def identity(options: Options) -> str:
    """Changes whenever a decision could: options, version, settings and the files of the databases."""
    paths = named_databases(None)
    states = [state_of(path) for path in paths.paths] if isinstance(paths, DatabasePaths) else [repr(paths)]
    settings = [(name.name, repr(name.get())) for name in (env.FIND_MODE, env.ONLY_SOLVER, env.NUM_THREADS, env.EXTERNAL)]
    text = repr((options, tilesmith.__version__, _sources(), states, settings))
    return hashlib.sha256(text.encode()).hexdigest()


def _sources() -> str:
    folder = Path(__file__).parents[1]
    files = sorted(folder.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
