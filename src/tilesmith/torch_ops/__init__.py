"""PyTorch programs: the operators of ``torch.ops.tilesmith``, and which problems a program meets.

``import tilesmith.torch_ops`` registers the operators, and has kernels use PyTorch's threads.
"""

from tilesmith.torch_ops import convolution, gemm, groups, scaled
from tilesmith.torch_ops.threads import share_threads

__all__ = ["convolution", "gemm", "groups", "scaled"]

share_threads()
