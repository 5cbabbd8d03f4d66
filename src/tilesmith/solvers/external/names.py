"""What PyTorch's own kernels are called, and whether they take part: nothing is loaded to tell."""

from __future__ import annotations

import sys

from tilesmith import env

CUDNN_NAME, CUBLAS_NAME = "torch_cudnn", "torch_cublas"


def takes_part(wanted: bool | None = None) -> bool:
    """As ``wanted``; None: where PyTorch with CUDA is loaded, and TILESMITH_EXTERNAL lets its kernels take part."""
    if wanted is not None:
        return wanted
    version = getattr(sys.modules.get("torch"), "version", None)
    return getattr(version, "cuda", None) is not None and env.EXTERNAL.get()
