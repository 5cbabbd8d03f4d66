"""What the kernels of a model's step would be on a GPU, which need not be there: families, estimates, who runs what.

    python benchmarks/models/would_run.py --target sm_90a:132:h200 --models unet resnet50 --kinds training
    python benchmarks/models/would_run.py --layers          # a line for each problem
    python benchmarks/models/would_run.py --models convnext_tiny --left > list   # the problems that are left to PyTorch
    python benchmarks/models/would_run.py --kinds inference --backend --processes 2    # the pass, and who estimates

The step is traced with tensors without values. ``optimize`` runs each layer's problem; the backend decides about each
problem of the graph of forward and backward pass together, after fusion. Estimates are those of the cost model.
With ``--processes`` so many others make them, as where a model is compiled on a machine with a GPU and more cores; the
cache is empty then. The time of the pass counts from when they are up.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]
import torch  # noqa: E402
import torch._inductor.compile_fx  # noqa: E402  its decompositions need it
from torch._dispatch.python import enable_python_dispatcher  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from zoo import DTYPES, MODELS, batch_of, loss_of, model_named  # noqa: E402

import tilesmith.torch_ops  # noqa: E402, F401
from tilesmith.dispatch.background import ahead  # noqa: E402
from tilesmith.problems.rewrite import Signature  # noqa: E402
from tilesmith.targets.names import parse_target  # noqa: E402
from tilesmith.torch_ops.compile.decide import Decider, Decision  # noqa: E402
from tilesmith.torch_ops.compile.leftovers import reduced_decompositions  # noqa: E402
from tilesmith.torch_ops.compile.nodes import value  # noqa: E402
from tilesmith.torch_ops.compile.rewrite import Rewriter  # noqa: E402
from tilesmith.torch_ops.trace import READERS  # noqa: E402

START_S = 2.0  # for processes to import what they need


@dataclass
class Fake:
    """A model's training step or inference of tensors without values."""

    call: Callable[..., object]
    args: tuple
    mode: FakeTensorMode
    training: bool


def fake_step(name: str, training: bool, dtype: str, asked: int) -> Fake:
    found = model_named(name, "cuda")
    batch = batch_of(found, asked, training)
    mode, order = FakeTensorMode(), torch.channels_last_3d if len(found.shape) == 4 else torch.channels_last
    with torch.device("meta"):
        model = found.make().to(DTYPES[dtype])
    model = model.to_empty(device="cpu").to(memory_format=order).train(training)
    x = torch.empty(batch, *found.shape, dtype=DTYPES[dtype]).to(memory_format=order)
    names = [key for key, _ in model.named_parameters()]
    buffers = {key: mode.from_tensor(each) for key, each in model.named_buffers()}

    def call(x: torch.Tensor, *given: torch.Tensor) -> object:
        held = dict(zip(names, given, strict=True))
        y = torch.func.functional_call(model, {**held, **buffers}, (x,))
        if not training:
            return y
        target = torch.zeros(batch, dtype=torch.long) if found.classes else torch.zeros_like(y, dtype=torch.float32)
        return torch.autograd.grad(loss_of(y, target), list(held.values()))

    args = tuple(mode.from_tensor(each) for each in (x, *model.parameters()))
    return Fake(call, args, mode, training)


def decider(target: str) -> Decider:
    """Decisions for a GPU that this machine may not have: no database is asked."""
    found = Decider("cpu")
    found.target, found.raced = parse_target(target), False
    return found


def _order_of_cudnn(x: torch.Tensor, w: torch.Tensor, backend: object) -> torch.memory_format:
    """As cuDNN lays its results: channels last if an operand is. A CPU lays those of 3-D convolutions otherwise."""
    form = {4: torch.channels_last, 5: torch.channels_last_3d}[x.dim()]
    lies = any(each.is_contiguous(memory_format=form) and not each.is_contiguous() for each in (x, w))
    return form if lies else torch.contiguous_format


def traced(step: Fake) -> torch.fx.GraphModule:
    laid = mock.patch.object(torch._C, "_conv_determine_backend_memory_format", _order_of_cudnn)
    with laid, step.mode, torch.set_grad_enabled(step.training), enable_python_dispatcher():
        return make_fx(step.call, decomposition_table=reduced_decompositions())(*step.args)


def layers(graph: torch.fx.Graph) -> dict[Signature, int]:
    """The problems that ``optimize`` meets in the step, with their calls."""
    met: dict[Signature, int] = {}
    for node in graph.nodes:
        read = READERS.get(node.target)
        if read is not None:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value)
            for signature in read(value(node), *args, **kwargs):
                met[signature] = met.get(signature, 0) + 1
    return met


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="sm_90a:132:h200")
    parser.add_argument("--models", nargs="+", choices=[*MODELS["cuda"], "tiny"], default=list(MODELS["cuda"]))
    parser.add_argument("--kinds", nargs="+", choices=["inference", "training"], default=["training"])
    parser.add_argument("--dtype", choices=list(DTYPES), default="bf16")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--layers", action="store_true", help="a line for each problem")
    parser.add_argument("--backend", action="store_true", help="the pass of the backend alone")
    parser.add_argument("--processes", type=int, default=0, metavar="N", help="estimate in N processes")
    parser.add_argument("--left", action="store_true", help="only the keys of the problems that are left to PyTorch")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(ahead, "_count", return_value=options.processes):
        if options.processes:
            os.environ["TILESMITH_CACHE_DIR"] = folder
        for name in options.models:
            for kind in options.kinds:
                tell(name, kind == "training", options)
    return 0


def tell(name: str, training: bool, options: argparse.Namespace) -> None:
    step, begin = fake_step(name, training, options.dtype, options.batch), time.perf_counter()
    gm, kind = traced(step), "training" if training else "inference"
    met, traced_s = layers(gm.graph), time.perf_counter() - begin
    print(f"{name}, {kind}: {len(met)} problems in {sum(met.values())} calls; traced in {traced_s:.1f} s", flush=True)
    if not options.backend:
        tell_layers(met, options)
    if options.left:
        return
    if options.processes:
        ahead.start(parse_target(options.target), "fast")
        time.sleep(START_S)
    rewriter, begin, used = Rewriter(gm.graph, decider(options.target), False), time.perf_counter(), time.process_time()
    rewriter.run()
    took, used, lines = time.perf_counter() - begin, time.process_time() - used, rewriter.lines
    ours = {line.problem for line in lines if line.ours}
    print(
        f"  backend: pass in {took:.2f} s, of which {used:.2f} s of this process; {len(lines)} lines, "
        f"{sum(line.ours for line in lines)} ours, {len(ours)} problems, "
        f"{len(ours - {each.key() for each in met})} others than optimize's",
        flush=True,
    )


def tell_layers(met: dict[Signature, int], options: argparse.Namespace) -> None:
    decide, begin = decider(options.target), time.perf_counter()
    eager: dict[Signature, Decision] = {each: decide(lambda each=each: each) for each in met}
    if options.left:
        print("\n".join(each.key() for each, decision in eager.items() if not decision.ours))
        return
    print(f"  decided in {time.perf_counter() - begin:.1f} s")
    for signature, decision in sorted(eager.items(), key=lambda each: -(each[1].time_us or 0) * met[each[0]]):
        if options.layers or not decision.ours:
            us = decision.time_us or 0.0
            print(
                f"  {us * met[signature]:9.1f} us {met[signature]:3} x {us:9.1f}  {decision.solver:20} "
                f"{'ours' if decision.ours else 'PyTorch':7} {decision.reason}  {signature.key()}"
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
