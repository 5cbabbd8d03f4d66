"""Kernels of a PyTorch program run on PyTorch's own threads.

PyTorch's threads spin for some milliseconds behind each of its operators. Threads of ours would find no free core then.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from tilesmith.runtime import _runtime


def share_threads() -> bool:
    """Have launches use the OpenMP threads that PyTorch uses; False, and nothing changes, where it has none.

    The child of a fork uses threads of its own again: OpenMP's do not outlive a fork.
    """
    openmp: Any = torch.backends.openmp
    if not openmp.is_available():
        return False
    try:  # the library's own dependencies are searched: another OpenMP of the process is not meant
        start = ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (OSError, AttributeError, TypeError):
        return False
    _runtime.lend_threads(ctypes.cast(start, ctypes.c_void_p).value or 0)
    return True
