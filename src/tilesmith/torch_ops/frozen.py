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
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from tilesmith.dispatch.calls import Call
from tilesmith.dispatch.kept_calls import when_forgotten

_PROBLEMS = 256  # of one filter


class PackedForms:
    """The packed forms of one tensor.

    ``bound`` holds prepared plans that take the other tensors as they are, by the options of the call. None stands for
    options that several problems share.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.reference = weakref.KeyedRef(tensor, _forget_dead, id(tensor))
        self.version = tensor._version
        self.address = tensor.data_ptr()
        self.bound: dict[Hashable, Callable[..., torch.Tensor] | None] = {}
        self._packed: dict[Hashable, Any] = {}

    def packed(self, call: Call, filter_: torch.Tensor) -> Any:
        """The call with its filter packed: a function of the other tensors; None where nothing is to be packed.

        ``filter_`` is the tensor, or a view of it.
        """
        key = (call.token, lying_of(filter_))
        if key in self._packed:
            return self._packed[key]
        if _is_captured(filter_):
            return None
        # A packed form keeps what it was made of: an alias, so that the tensor itself can die.
        pack = partial(call.packed, filter_.detach())
        packed = _packed_apart(pack, filter_) if filter_.is_cuda else pack()
        if len(self._packed) >= _PROBLEMS:
            self._packed.clear()
            self.bound.clear()
        self._packed[key] = packed
        return packed

    def all(self) -> tuple[Any, ...]:
        """Everything that a call may read, to be kept alive."""
        return self, *self._packed.values(), *self.bound.values()


_filters: dict[int, PackedForms] = {}  # by the id of the tensor
_captured: MutableMapping[torch.Tensor, dict[int, Any]] = WeakIdKeyDictionary()  # what CUDA graphs read
_packing = ThreadPoolExecutor(1, "tilesmith-packing")  # its thread begins with the first filter on a GPU
when_forgotten(_filters.clear)


def _forget_dead(reference: weakref.KeyedRef[int, torch.Tensor]) -> None:
    known = _filters.get(reference.key)
    if known is not None and known.reference is reference:
        del _filters[reference.key]


def packed_forms(filter_: torch.Tensor) -> tuple[PackedForms | None, Hashable]:
    """The packed forms of a tensor as it is now, None where none may be kept; and which view of their owner it is.

    Those of a view, such as the transpose of a weight, live as long as the tensor that it is a view of.
    """
    captured = _is_captured(filter_)
    known = _filters.get(id(filter_))
    if not captured and known is not None and known.reference() is filter_:
        if known.version == filter_._version and known.address == filter_.data_ptr():
            return known, None
    elif filter_.is_inference():
        return None, None
    base = filter_._base
    owner = filter_ if base is None else base
    view = None if base is None else lying_of(filter_)
    known = _filters.get(id(owner))
    if (
        known is None
        or known.reference() is not owner
        or known.version != owner._version
        or known.address != owner.data_ptr()
    ):
        known = None
    if captured:
        if known is not None:
            _captured.setdefault(owner, {})[id(known)] = known.all()
        return known, view
    if known is None:
        known = _filters[id(owner)] = PackedForms(owner)
    return known, view


def _is_captured(filter_: torch.Tensor) -> bool:
    return filter_.is_cuda and torch.cuda.is_current_stream_capturing()


def _packed_apart(pack: Callable[[], Any], filter_: torch.Tensor) -> Any:
    """Pack in another thread: what this thread allocates may belong to the pool of a CUDA graph that follows."""
    stream = torch.cuda.current_stream(filter_.device)

    def run() -> Any:
        with torch.no_grad(), torch.cuda.stream(stream):
            packed = pack()
        stream.synchronize()  # any stream may read it from now on
        return packed

    return _packing.submit(run).result()


def lying_of(view: torch.Tensor) -> Hashable:
    """Which elements of its storage a tensor has."""
    return (view.shape, view.stride(), view.storage_offset(), view.dtype)
