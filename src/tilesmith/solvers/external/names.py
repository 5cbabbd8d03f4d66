"""Names of PyTorch's own kernels, and whether they compete. Loads no library."""

from __future__ import annotations

import sys

from tilesmith import env

CUDNN_NAME, CUBLAS_NAME = "torch_cudnn", "torch_cublas"


def takes_part(wanted: bool | None = None) -> bool:
    """``wanted``; None: true if PyTorch with CUDA is loaded and TILESMITH_EXTERNAL allows its kernels."""
    if wanted is not None:
        return wanted
    version = getattr(sys.modules.get("torch"), "version", None)
    return getattr(version, "cuda", None) is not None and env.EXTERNAL.get()
