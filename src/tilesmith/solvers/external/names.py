"""What PyTorch's own kernels are called, and whether they take part: nothing is loaded to tell."""

from __future__ import annotations

import sys

from tilesmith import env

CUDNN_NAME, CUBLAS_NAME = "torch_cudnn", "torch_cublas"


def is_external(solver: str) -> bool:
    """Whether a record's solver is one of these."""
    return solver in (CUDNN_NAME, CUBLAS_NAME)


def takes_part() -> bool:
    """PyTorch with CUDA is loaded in this process, and TILESMITH_EXTERNAL lets its kernels take part."""
    version = getattr(sys.modules.get("torch"), "version", None)
    return getattr(version, "cuda", None) is not None and env.EXTERNAL.get()
