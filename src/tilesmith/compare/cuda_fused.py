"""Forward convolutions with an epilogue on a GPU, in the ways that PyTorch has beside a pass for each operation.

cuDNN's fused calls know ReLU alone. Any epilogue is a convolution and one pass over its result, which Inductor
generates. Each way is a CUDA graph for each place in the row, so that no time of the host is in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.external.library import ConvCall
from tilesmith.solvers.external.operators import ConvShape, activate

Tensors = dict[str, torch.Tensor]
Compute = Callable[[Tensors], torch.Tensor]
_log = logging.getLogger("tilesmith.compare")


def fused_calls(
    signature: ConvSignature, row: Sequence[Sequence[torch.Tensor]]
) -> dict[str, list[Callable[[], torch.Tensor]]]:
    """For each way its calls on the tensors of each place in ``row``, which lie as the signature says."""
    problem = signature.geometry
    if problem.direction != "fwd" or problem.epilogue.is_identity:
        return {}
    call, shape = ConvCall(signature), ConvShape(problem, signature.canonical.spatial_dims)
    found = {}
    for name, compute in _computes(problem.epilogue, shape).items():
        try:
            found[name] = [_graph(partial(compute, call.operands(tensors))) for tensors in row]
        except (RuntimeError, NotImplementedError) as error:  # cuDNN has no such kernel, or Inductor has no compiler
            _log.warning("%s takes no part for %s: %s", name, signature.key(), error)
    return found


def _computes(epilogue: Epilogue, shape: ConvShape) -> dict[str, Compute]:
    found: dict[str, Compute] = {"one_pass": partial(_in_one_pass, epilogue, shape)}
    if epilogue.activation == "relu":
        found["cudnn_fused"] = partial(_by_cudnn, epilogue, shape)
    return found


def _by_cudnn(epilogue: Epilogue, shape: ConvShape, t: Tensors) -> torch.Tensor:
    library: Any = torch
    more = (shape.stride, shape.padding, shape.dilation, shape.groups)
    if epilogue.residual:
        found: torch.Tensor = library.cudnn_convolution_add_relu(t["x"], t["w"], t["z"], 1.0, t.get("b"), *more)
        return found
    found = library.cudnn_convolution_relu(t["x"], t["w"], t.get("b"), *more)
    return found


def _in_one_pass(epilogue: Epilogue, shape: ConvShape, t: Tensors) -> torch.Tensor:
    found = torch.convolution(
        t["x"], t["w"], None, shape.stride, shape.padding, shape.dilation, False, [0] * shape.dims, shape.groups
    )
    bias = t["b"].reshape(1, -1, *[1] * shape.dims) if epilogue.bias else None
    made: torch.Tensor = _one_pass(epilogue)(found, bias, t.get("z"))
    return made


@lru_cache(maxsize=32)
def _one_pass(epilogue: Epilogue) -> Callable[..., torch.Tensor]:
    def finish(result: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None) -> torch.Tensor:
        if bias is not None:
            result = result + bias
        if residual is not None:
            result = result + residual
        return activate(epilogue, result)

    return torch.compile(finish, dynamic=True)


def _graph(call: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """``call`` as the replay of a graph on the current stream."""
    for _ in range(2):  # cuDNN tries its plans, Inductor compiles
        call()
    torch.cuda.current_stream().synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        result = call()

    def replay() -> torch.Tensor:
        graph.replay()
        return result

    return replay
