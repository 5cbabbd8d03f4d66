"""Odd shapes: tails in every loop, strides, dilations, groups, 1-D to 3-D, every dtype and epilogue."""

from __future__ import annotations

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.gemm import GemmSignature

MODES = ("fwd", "bwd", "wrw")
SHAPES = (
    # input, filter, options; channels last
    ((2, 13, 11, 40), (72, 3, 3, 40), {"padding": 1}),
    ((3, 17, 19, 64), (64, 3, 3, 64), {"padding": 1, "stride": 2}),
    ((2, 20, 22, 96), (33, 5, 5, 96), {"padding": (2, 1), "dilation": 2}),
    ((1, 57, 31, 3), (64, 7, 7, 3), {"padding": 3, "stride": 2}),
    ((4, 9, 9, 128), (256, 1, 1, 128), {}),
    ((2, 14, 14, 256), (128, 1, 1, 256), {"stride": 2}),
    ((2, 12, 10, 48), (96, 3, 3, 12), {"padding": 1, "groups": 4}),
    ((2, 12, 10, 80), (80, 3, 3, 1), {"padding": 1, "groups": 80}),
    ((1, 5, 6, 7, 32), (40, 3, 3, 3, 32), {"padding": 1}),
    ((2, 65, 24), (16, 5, 24), {"padding": 2}),
    ((2, 7, 7, 512), (512, 3, 3, 512), {"padding": 1}),
    ((1, 9, 9, 64), (64, 4, 4, 48), {"stride": 2, "padding": 1, "transposed": True}),
)


def odd_problems():
    """Every signature once; the first shapes in more dtypes than the others."""
    for number, (input_shape, kernel_shape, options) in enumerate(SHAPES):
        last = {3: "NWC", 4: "NHWC", 5: "NDHWC"}[len(input_shape)]
        for dtype in ("bf16", "fp16", "fp32") if number < 4 else ("bf16",):
            for mode in MODES:
                yield ConvSignature(
                    input_shape, kernel_shape, dtype=dtype, mode=mode, shared_layout=last, **options
                )  # fmt: skip
    first, filter_ = SHAPES[0][:2]
    for dtype in ("fp64", "int8", "fp8e4m3", "fp8e5m2"):
        yield ConvSignature(first, filter_, dtype=dtype, shared_layout="NHWC", padding=1)
    yield ConvSignature((2, 40, 13, 11), (72, 40, 3, 3), dtype="bf16", padding=1)
    yield ConvSignature(first, filter_, dtype="bf16", shared_layout="NHWC", mode="bgrad", padding=1)
    for activation in ACTIVATIONS:
        epilogue = Epilogue(bias=True, residual=activation != "silu", activation=activation)
        yield ConvSignature(first, filter_, dtype="bf16", shared_layout="NHWC", padding=1, epilogue=epilogue)
    for m, n, k in ((64, 64, 64), (129, 257, 65), (1, 1000, 512), (333, 8, 40), (256, 512, 1000), (7, 5, 3)):
        for dtype in ("bf16", "fp16", "fp32"):
            for trans_a, trans_b in ((False, False), (False, True), (True, False), (True, True)):
                if dtype == "bf16" or (m, trans_a, trans_b) in ((129, False, True), (129, False, False)):
                    yield GemmSignature(m, n, k, dtype=dtype, trans_a=trans_a, trans_b=trans_b)
    yield GemmSignature(100, 72, 80, batch=3, dtype="bf16", trans_b=True)
    yield GemmSignature(100, 72, 80, dtype="bf16", alpha=0.5, beta=2.0, epilogue=Epilogue(bias=True, activation="gelu"))
    yield GemmSignature(100, 72, 80, dtype="int8")
    yield GemmSignature(100, 72, 80, dtype="fp8e4m3", trans_b=True)
