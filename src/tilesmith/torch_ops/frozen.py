"""Filters that are packed once: what the argument ``frozen`` of the operators does.

The packed forms of a filter are kept as long as the tensor lives. They are made anew when its version or its address
has changed. Nothing is kept of a tensor that has no version (PyTorch's inference tensors). While a CUDA graph is
captured nothing is packed; what is packed already is used, and lives as long as the tensor, since the graph reads it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch.utils.weak import WeakIdKeyDictionary

from tilesmith.dispatch.eager import Call, when_forgotten

_PROBLEMS = 256  # of one filter

Packed = Callable[..., torch.Tensor]


class _Filter:
    """The packed forms of one tensor, by problem. None: the kernel of that problem reads the filter as it is."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.reference = weakref.KeyedRef(tensor, _forget_dead, id(tensor))
        self.version = tensor._version
        self.address = tensor.data_ptr()
        self.packed: dict[Hashable, Packed | None] = {}


_filters: dict[int, _Filter] = {}  # by the id of the tensor
_captured: MutableMapping[torch.Tensor, list[Packed]] = WeakIdKeyDictionary()  # what CUDA graphs read
when_forgotten(_filters.clear)


def _forget_dead(reference: weakref.KeyedRef[int, torch.Tensor]) -> None:
    known = _filters.get(reference.key)
    if known is not None and known.reference is reference:
        del _filters[reference.key]


def packed_filter(filter_: torch.Tensor, problem: Hashable, find: Callable[[], Call]) -> Packed | None:
    """The call of ``find`` with its filter packed: a function of the other tensors; None where nothing is to be packed.

    ``problem`` stands for all that the call depends on, but the filter. The packed forms of a view, such as the
    transpose of a weight, live as long as the tensor that it is a view of.
    """
    if filter_.is_inference():
        return None
    base = filter_._base
    owner = filter_ if base is None else base
    known = _filters.get(id(owner))
    if (
        known is None
        or known.reference() is not owner
        or known.version != owner._version
        or known.address != owner.data_ptr()
    ):
        known = None
    key = (problem, filter_.shape, filter_.stride(), filter_.storage_offset(), filter_.dtype)
    if filter_.is_cuda and torch.cuda.is_current_stream_capturing():
        held = None if known is None else known.packed.get(key)
        if held is not None:
            _captured.setdefault(owner, []).append(held)
        return held
    if known is None:
        known = _filters[id(owner)] = _Filter(owner)
    try:
        return known.packed[key]
    except KeyError:
        pass
    # The packed form keeps what it was made of: an alias, so that the tensor itself can die.
    pack = partial(find().packed, filter_.detach())
    packed = _packed_apart(pack, filter_) if filter_.is_cuda else pack()
    if len(known.packed) >= _PROBLEMS:
        known.packed.clear()
    known.packed[key] = packed
    return packed


def _packed_apart(pack: Callable[[], Packed | None], filter_: torch.Tensor) -> Packed | None:
    """Pack in a thread of its own: what this thread allocates may belong to the pool of a CUDA graph that follows."""
    stream = torch.cuda.current_stream(filter_.device)

    def run() -> Packed | None:
        with torch.no_grad(), torch.cuda.stream(stream):
            packed = pack()
        stream.synchronize()  # any stream may read it from now on
        return packed

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def lying(tensor: torch.Tensor | None) -> Hashable:
    """All properties of a tensor that a call depends on, except its values."""
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
