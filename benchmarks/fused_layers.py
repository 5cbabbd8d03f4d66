"""The fused problems of whole networks: each convolution and product with the bias, residual and activation behind it.

    python benchmarks/fused_layers.py      # writes benchmarks/problems/fused.txt anew; needs torchvision

The layers are read from the traced models of benchmarks/models (bf16, channels last, batch 64), as they run in eval():
batch norm and ConvNeXt's layer scale are folded into the filter and the bias, dropout does nothing. A residual is an
addition behind a layer that no other layer has taken, of which the first in the program is the one that takes it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn import functional

from tilesmith import ConvSignature, Epilogue, GemmSignature

ROOT = Path(__file__).parent
LIST = ROOT / "problems" / "fused.txt"
NETWORKS = ("resnet50", "mobilenet_v3_large", "convnext_tiny", "unet")
BATCH, DTYPE = 64, "bf16"
_NAMES: dict[Any, str] = {
    nn.ReLU: "relu", nn.Hardswish: "hardswish", nn.Hardsigmoid: "hardsigmoid", nn.GELU: "gelu", nn.SiLU: "silu",
    nn.Sigmoid: "sigmoid", nn.Tanh: "tanh", functional.relu: "relu", functional.hardswish: "hardswish",
    functional.gelu: "gelu", functional.silu: "silu",
}  # fmt: skip
_PASSED = ("permute", "stochastic_depth", "Dropout", "Identity")  # functions, methods and modules


def layers(model: nn.Module, shape: tuple[int, ...], dtype: str = DTYPE) -> Iterator[ConvSignature | GemmSignature]:
    """Every convolution, transposed convolution and product of ``model`` for an input of ``shape``, in its order."""
    traced = fx.symbolic_trace(model.eval().to("meta"))
    ShapeProp(traced).propagate(torch.empty(shape, device="meta"))
    modules, taken = dict(traced.named_modules()), set()
    for node in traced.graph.nodes:
        layer = modules.get(str(node.target)) if node.op == "call_module" else None
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            epilogue, added = _behind(node, layer.bias is not None, modules, taken)
            taken |= added
            yield _problem(layer, tuple(node.args[0].meta["tensor_meta"].shape), epilogue, dtype)


def _behind(
    node: fx.Node, bias: bool, modules: dict[str, nn.Module], taken: set[fx.Node]
) -> tuple[Epilogue, set[fx.Node]]:
    """What follows a layer and can be fused with it, and the additions among it."""
    added: set[fx.Node] = set()
    while len(node.users) == 1:
        source, (node,) = node, tuple(node.users)
        layer = modules.get(str(node.target)) if node.op == "call_module" else None
        kind = _NAMES.get(type(layer) if layer is not None else node.target)
        if kind is not None:
            kind = "gelu_tanh" if getattr(layer, "approximate", "") == "tanh" else kind
            return Epilogue(bias=bias, residual=bool(added), activation=kind), added
        if isinstance(layer, nn.BatchNorm2d):
            bias = True
        elif node.target in (operator.add, operator.iadd, torch.add) and not added and node not in taken:
            others = [each for each in node.args if each is not source]
            if len(others) != 1 or others[0].meta["tensor_meta"].shape != node.meta["tensor_meta"].shape:
                break
            added = {node}
        elif not _is_scale(node) and _named(node, layer) not in _PASSED:
            break
    return Epilogue(bias=bias, residual=bool(added)), added


def _named(node: fx.Node, layer: nn.Module | None) -> str:
    """The name of a module's class, of a function or of a method."""
    return type(layer).__name__ if layer is not None else getattr(node.target, "__name__", str(node.target))


def _is_scale(node: fx.Node) -> bool:
    """A product with a parameter, which is folded into the filter and the bias."""
    return node.target is operator.mul and any(isinstance(a, fx.Node) and a.op == "get_attr" for a in node.args)


def _problem(
    layer: nn.Conv2d | nn.ConvTranspose2d | nn.Linear, shape: tuple[int, ...], epilogue: Epilogue, dtype: str
) -> ConvSignature | GemmSignature:
    if isinstance(layer, nn.Linear):
        m, k = prod(shape[:-1]), shape[-1]
        return GemmSignature(m, layer.out_features, k, trans_b=True, dtype=dtype, epilogue=epilogue)
    (n, c, h, w), (a, b, *taps) = shape, layer.weight.shape
    transposed = isinstance(layer, nn.ConvTranspose2d)
    return ConvSignature(
        (n, h, w, c), (a, *taps, b), shared_layout="NHWC", dtype=dtype, stride=layer.stride, padding=layer.padding,
        dilation=layer.dilation, groups=layer.groups, transposed=transposed,
        output_padding=layer.output_padding if transposed else 0, epilogue=epilogue,
    )  # fmt: skip


def main() -> int:
    sys.path.insert(0, str(ROOT / "models"))
    from zoo import model_named

    lines = [
        f"# Fused layers of networks, {DTYPE}, channels last, batch {BATCH}; each problem once, by its key.",
        "# Written by: python benchmarks/fused_layers.py",
    ]
    seen: set[str] = set()
    for name in NETWORKS:
        model = model_named(name, "cuda")
        found = [signature.key() for signature in layers(model.make(), (BATCH, *model.shape))]
        new = [key for key in dict.fromkeys(found) if key not in seen]
        lines += [f"# {name}: {len(found)} layers, {len(new)} problems that no network above has", *new]
        seen |= set(new)
    LIST.write_text("\n".join(lines) + "\n")
    print(f"{len(seen)} problems in {LIST}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
