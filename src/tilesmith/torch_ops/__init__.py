"""PyTorch programs: the operators of ``torch.ops.tilesmith``, and which problems a program meets.

``import tilesmith.torch_ops`` registers the operators.
"""

from tilesmith.torch_ops import convolution, gemm

__all__ = ["convolution", "gemm"]
