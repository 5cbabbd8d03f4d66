"""The bias gradient on GPUs: what autograd hands over never falls to the plain reference, which takes far longer."""

import torch

from tilesmith.dispatch.choose import choose
from tilesmith.dispatch.facts import options_of
from tilesmith.targets.cuda import cuda_target
from tilesmith.torch_ops.describe import conv_problem

# The shapes of dy: of images, of volumes and of sequences; the last layers of nets and their first ones.
SHAPES = [
    (32, 64, 128, 128), (8, 3, 224, 224), (64, 255, 13, 13), (256, 2048, 7, 7), (1, 12, 512, 512), (16, 1, 64, 64),
    (2, 8, 2, 2), (1, 1000, 1, 1), (2, 32, 16, 64, 64), (32, 512, 100),
]  # fmt: skip
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


ARCHS = ("sm_80", "sm_89", "sm_90a", "sm_120a")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def test_no_bias_gradient_takes_the_reference():
    """Each shape in every type, each type on every arch."""
    for turn, arch in enumerate(ARCHS):
        target = cuda_target(arch)
        for number, shape in enumerate(SHAPES):
            dtype = DTYPES[(turn + number) % len(DTYPES)]
            planes = torch.empty(shape, dtype=dtype, device="meta")
            found = [planes]
            if len(shape) > 3:
                found += [planes.to(memory_format=FORMATS[len(shape) - 2]), planes.transpose(-1, -2)]
            for dy in found:
                dims, k = dy.dim() - 2, dy.shape[1]
                x, w = torch.empty_like(dy), torch.empty((k, k, *(1,) * dims), dtype=dtype, device="meta")
                problem = conv_problem(
                    "bgrad", x, w, dy, stride=(1,) * dims, padding=(0,) * dims, dilation=(1,) * dims, transposed=False,
                    output_padding=(0,) * dims, groups=1,
                )  # fmt: skip
                chosen = choose(options_of(problem.canonical, target), (), mode="fast")
                assert chosen.solver == "cuda_channel_sums", (arch, dy.shape, dy.stride(), chosen)
