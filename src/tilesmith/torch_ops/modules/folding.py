"""Filters with a batch norm folded in: data derived from the parameters, made anew when one of them has changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# Batch norms by the number of spatial axes of the layer before them. In evaluation all of them compute the same.
_NORMS: dict[int, tuple[type[nn.Module], ...]] = {
    0: (nn.BatchNorm1d,),
    1: (nn.BatchNorm1d, nn.SyncBatchNorm),
    2: (nn.BatchNorm2d, nn.SyncBatchNorm),
    3: (nn.BatchNorm3d, nn.SyncBatchNorm),
}


def is_foldable(layer: Any, norm: nn.Module) -> bool:
    """Whether ``norm`` scales the channels of the result of ``layer`` by what it keeps, and not by the batch."""
    if type(norm) not in _NORMS[layer.weight.dim() - 2]:
        return False
    kept: Any = norm
    channels = layer.out_channels if hasattr(layer, "out_channels") else layer.out_features
    return kept.running_mean is not None and kept.running_var is not None and kept.num_features == channels


class Folded:
    """The filter and the bias of a layer, with a batch norm folded in if one follows.

    ``filter`` and ``bias`` stay the same tensors as long as shape, dtype and device do: a compiled program that has
    read them sees what ``refresh`` writes. Without a batch norm they are aliases of the parameters.
    """

    def __init__(self, layer: Any, norm: Any) -> None:
        self._layer, self._norm = layer, norm
        self._sources: tuple[Any, ...] = ()
        self._stamps: list[Any] = []
        self.filter: Any = None
        self.bias: Any = None

    def refresh(self, anew: bool = False) -> bool:
        """Follow the parameters and the kept mean and variance; False if their changes cannot be seen.

        ``anew``: fold again even if nothing seems to have changed.
        """
        kept = self._layer._parameters
        sources: tuple[Any, ...] = (kept["weight"], kept["bias"])
        if self._norm is not None:
            affine, moments = self._norm._parameters, self._norm._buffers
            mean, var = moments["running_mean"], moments["running_var"]
            if mean is None or var is None:  # the norm has those of each batch now
                return False
            if DistributedDataParallel._active_ddp_module is not None:  # it writes buffers and counts no version
                self._stamps = []
                return False
            sources += (affine["weight"], affine["bias"], mean, var)
        try:
            stamps = [None if each is None else (each._version, each.data_ptr()) for each in sources]
        except RuntimeError:  # a tensor of inference_mode, which counts no versions, or one without memory
            return False
        if not anew and stamps == self._stamps and all(map(_same, sources, self._sources)):
            return True
        if not all(each is None or type(each) in (torch.Tensor, nn.Parameter) for each in sources):
            return False
        if self._norm is None:
            # What was packed of an alias is forgotten with it, even where the version missed a change.
            self.filter, self.bias = (None if each is None else each.detach() for each in sources)
        else:
            with torch.inference_mode(False), torch.no_grad():
                self._fold(*sources)
        self._sources, self._stamps = sources, stamps
        return True

    def _fold(self, w: Any, b: Any, gain: Any, shift: Any, mean: Any, var: Any) -> None:
        scale = (var.double() + self._norm.eps).rsqrt()
        if gain is not None:
            scale = scale * gain.double()
        start = -mean.double() if b is None else b.double() - mean.double()
        bias = start * scale if shift is None else start * scale + shift.double()
        exact = torch.float64 if w.dtype == torch.float64 else torch.float32
        if getattr(self._layer, "transposed", False):
            groups = self._layer.groups  # w: (channels, filters / groups, taps)
            grouped = w.to(exact).unflatten(0, (groups, -1))
            factors = scale.to(exact).reshape(groups, 1, -1, *[1] * (w.dim() - 2))
            filter_ = (grouped * factors).flatten(0, 1)
        else:
            filter_ = w.to(exact) * scale.to(exact).reshape(-1, *[1] * (w.dim() - 1))
        if (filter_.dtype, filter_.stride()) != (w.dtype, w.stride()):  # to touch new memory takes longer than the sums
            filter_ = torch.empty_like(w).copy_(filter_)
        self.filter = _written(self.filter, filter_)
        self.bias = _written(self.bias, bias.to(w.dtype))


def _same(one: Any, other: Any) -> bool:
    return one is other


def _written(before: torch.Tensor | None, new: torch.Tensor) -> torch.Tensor:
    """``new``, in the memory of ``before`` where it fits there."""
    if before is None or (before.shape, before.stride(), before.dtype, before.device) != (
        new.shape, new.stride(), new.dtype, new.device
    ):  # fmt: skip
        return new
    return before.copy_(new)
