"""A user's NumPy arrays as PyTorch tensors on logical axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tilesmith.problems.geometry import MatrixView, TensorView

TORCH_DTYPES: dict[str, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


def from_numpy(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """The same memory as a tensor; bf16 goes through 16-bit integers, which NumPy and PyTorch share."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The same values as an array; bf16 becomes ``ml_dtypes.bfloat16``."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    array: np.ndarray[Any, Any] = tensor.numpy()
    return array


def logical_tensor(array: np.ndarray[Any, Any], view: TensorView, spatial_dims: int) -> torch.Tensor:
    """A copy of a tensor of the problem as dense ``(N, C, *spatial)``, whatever its layout and pitches."""
    n, c, *spatial = view.shape
    item = array.itemsize
    sn, sc, *steps = (step * item for step in view.strides)
    shape = (n, c // view.vector, view.vector, *spatial)
    strides = (sn, sc, item, *steps)
    seen = np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)
    dense = np.array(seen, order="C", copy=True).reshape(n, c, *spatial)
    return from_numpy(dense.reshape(n, c, *spatial[3 - spatial_dims :]))


def matrix_tensor(array: np.ndarray[Any, Any], view: MatrixView) -> torch.Tensor:
    """A batched matrix ``(batch, rows, columns)`` as it is multiplied: the same memory, not copied."""
    strides = tuple(step * array.itemsize for step in view.strides)
    shape = (view.batch, view.rows, view.columns)
    # PyTorch refuses read-only memory with a warning; nothing here writes to it.
    return from_numpy(np.lib.stride_tricks.as_strided(array, shape, strides))
