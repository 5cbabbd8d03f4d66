"""Finds what can run inside a kernel: batch norm, bias, residual and activation behind a convolution or a product."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from tilesmith.problems.epilogue import IDENTITY, Epilogue
from tilesmith.torch_ops.compile.nodes import args_of, value

aten = torch.ops.aten
CONVOLUTION = aten.convolution.default
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)
BATCH_NORM = aten._native_batch_norm_legit_no_training.default
_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
# Operators that PyTorch would write out as several before the chains are looked for.
KEPT = (
    aten.silu.default, aten.gelu.default, aten.leaky_relu.default, aten.hardswish.default, aten.hardsigmoid.default,
    aten.hardtanh.default, BATCH_NORM,
)  # fmt: skip


@dataclass
class Chain:
    """A convolution or product and what follows it; ``end`` gives the value that all other nodes use.

    ``added`` are the node before the addition and the tensor that is added. ``views`` lie between a product and its
    activation: they change the shape of the rows alone.
    """

    head: Node
    end: Node
    norm: Node | None = None
    residual: Node | None = None
    bias: Node | None = None  # of a product, added behind it
    activation: Epilogue = IDENTITY  # the activation alone
    views: list[Node] = field(default_factory=list)
    taken: int = 0  # operators behind the head


def find_chain(head: Node, most: float = math.inf) -> Chain:
    """The longest chain behind ``head`` of which no value in between is used elsewhere; ``most`` operators at most."""
    chain = Chain(head, head)
    while chain.taken < most and (user := _only_user(chain.end)) is not None and _takes(chain, user):
        chain.taken += 1
    # A view at the end is no part of it.
    while chain.views and chain.end is chain.views[-1]:
        chain.views.pop()
        chain.end = args_of(chain.end)[0]
        chain.taken -= 1
    return chain


def _only_user(node: Node) -> Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None


def _takes(chain: Chain, user: Node) -> bool:
    """Add ``user`` to the chain if a kernel can do it."""
    if chain.activation.activation != "none":
        return False
    end, is_conv = chain.end, chain.head.target is CONVOLUTION
    if is_conv and user.target is BATCH_NORM:
        return _takes_norm(chain, user)
    if not is_conv and user.target in _VIEWS and value(user).dim() and value(user).shape[-1] == value(end).shape[-1]:
        chain.views.append(user)
        chain.end = user
        return True
    if user.target is aten.add.Tensor and user.kwargs.get("alpha", 1) == 1:
        return _takes_addition(chain, user)
    found = activation_of(user)
    if found is None or args_of(user)[0] is not end or value(user).dtype != value(end).dtype:
        return False
    chain.activation, chain.end = found, user
    return True


def _takes_norm(chain: Chain, user: Node) -> bool:
    """A batch norm with fixed statistics becomes a part of the filter and the bias."""
    for each in [each for each in user.users if not each.users]:  # statistics that nothing reads
        each.graph.erase_node(each)
    results = list(user.users)
    transposed, groups = args_of(chain.head)[6], args_of(chain.head)[8]
    if (
        chain.norm is not None or chain.residual is not None or args_of(user)[0] is not chain.end
        or any(args_of(each)[1] != 0 for each in results) or len(results) != 1
        or (transposed and groups != 1)
        or value(results[0]).dtype != value(chain.end).dtype
    ):  # fmt: skip
        return False
    chain.norm, chain.end = user, results[0]
    return True


def _takes_addition(chain: Chain, user: Node) -> bool:
    first, second = args_of(user)
    other = second if first is chain.end else first
    added, mine, result = value(other), value(chain.end), value(user)
    if first is second or not isinstance(other, Node) or not isinstance(added, torch.Tensor):
        return False
    if not added.dtype == mine.dtype == result.dtype:
        return False
    if chain.residual is None and added.shape == mine.shape:
        chain.residual = other
    elif (
        chain.head.target is aten.mm.default and chain.bias is None and chain.residual is None
        and added.dim() == 1 and added.shape[0] == mine.shape[-1]
    ):  # fmt: skip
        chain.bias = other
    else:
        return False
    chain.end = user
    return True


# --- activations ------------------------------------------------------------------------------------------------------


def activation_of(node: Node) -> Epilogue | None:
    """The activation that a node computes of its first argument; None if the operators have none like it."""
    target, args = node.target, args_of(node)
    plain = _PLAIN.get(target)
    if plain is not None:
        return Epilogue(activation=plain)
    if target is aten.leaky_relu.default:
        return Epilogue(activation="leaky_relu", slope=float(_argument(node, 1, "negative_slope", 0.01)))
    if target is aten.gelu.default:
        return Epilogue(activation="gelu_tanh" if _argument(node, 1, "approximate", "none") == "tanh" else "gelu")
    if target is aten.hardtanh.default:
        low, high = _argument(node, 1, "min_val", -1.0), _argument(node, 2, "max_val", 1.0)
        return _clamp(low, high)
    if target is aten.clamp.default:
        return _clamp(_argument(node, 1, "min", None), _argument(node, 2, "max", None))
    if target is aten.clamp_min.default and len(args) == 2 and args[1] == 0:
        return Epilogue(activation="relu")
    return None


_PLAIN: dict[Any, str] = {
    aten.relu.default: "relu", aten.silu.default: "silu", aten.sigmoid.default: "sigmoid", aten.tanh.default: "tanh",
    aten.hardswish.default: "hardswish", aten.hardsigmoid.default: "hardsigmoid",
}  # fmt: skip


def _argument(node: Node, place: int, name: str, default: Any) -> Any:
    return args_of(node)[place] if len(args_of(node)) > place else node.kwargs.get(name, default)


def _clamp(low: Any, high: Any) -> Epilogue | None:
    numbers = all(isinstance(each, int | float) for each in (low, high))
    return Epilogue(activation="clamp", low=float(low), high=float(high)) if numbers and low <= high else None
