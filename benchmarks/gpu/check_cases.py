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
    # unequal padding
    ((2, 13, 11, 40), (72, 3, 4, 40), {"padding": "same"}),
    ((2, 14, 40, 64), (64, 3, 5, 64), {"padding": ((0, 2), (4, 0))}),
    ((2, 14, 13, 64), (64, 3, 3, 64), {"padding": ((0, 1), (0, 2))}),
    ((3, 18, 19, 64), (64, 3, 3, 64), {"padding": ((0, 1), (2, 0)), "stride": 2}),
    ((1, 5, 6, 7, 32), (40, 3, 3, 3, 32), {"padding": ((2, 0), (0, 2), (1, 0))}),
    ((2, 12, 10, 80), (80, 3, 3, 1), {"padding": ((0, 2), (2, 0)), "groups": 80}),
    ((2, 65, 64), (64, 4, 64), {"padding": "causal", "dilation": 2}),
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
    yield ConvSignature(first, filter_, dtype="fp64", shared_layout="NHWC", padding=1)
    yield from typed_problems()
    yield from laid_out_problems()
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


TYPES = (
    {"dtype": "fp32", "acc_dtype": "tf32"},
    {"dtype": "int8"},
    {"dtype": "fp8e4m3"},
    {"dtype": "fp8e5m2"},
)


def typed_problems():
    """What tensor cores multiply beside 16-bit floats: loads of every width, each operand by k and not."""
    for types in TYPES:
        for trans_a, trans_b in ((False, False), (False, True), (True, False), (True, True)):
            yield GemmSignature(131, 77, 93, trans_a=trans_a, trans_b=trans_b, lda=208, ldb=208, ldc=100, **types)
            yield GemmSignature(256, 320, 544, trans_a=trans_a, trans_b=trans_b, **types)
        for mode in MODES:
            if types["dtype"] == "int8" and mode == "wrw":
                continue
            for input_shape, kernel_shape, options in (
                ((3, 9, 11, 7), (5, 3, 3, 7), {"padding": 1}),
                ((2, 15, 17, 36), (44, 3, 2, 36), {"padding": (2, 1), "stride": (3, 2)}),
                ((4, 14, 14, 64), (96, 3, 3, 64), {"padding": 1}),
                ((2, 12, 13, 32), (48, 2, 3, 16), {"padding": 1, "groups": 2, "dilation": (2, 1)}),
                ((2, 5, 7, 6, 12), (10, 3, 2, 3, 12), {"padding": 1, "stride": (2, 1, 2)}),
            ):
                last = {4: "NHWC", 5: "NDHWC"}[len(input_shape)]
                yield ConvSignature(input_shape, kernel_shape, mode=mode, shared_layout=last, **types, **options)
    epilogue = Epilogue(bias=True, residual=True, activation="clamp", low=-900.0, high=2000.0)
    yield GemmSignature(100, 72, 80, dtype="int8", alpha=3, beta=-2, epilogue=Epilogue(bias=True, activation="relu"))
    yield ConvSignature(
        (2, 9, 10, 20), (33, 3, 3, 20), dtype="int8", shared_layout="NHWC", padding=1, epilogue=epilogue
    )
    yield GemmSignature(100, 72, 80, a_dtype="fp8e4m3", b_dtype="fp8e5m2", c_dtype="bf16", alpha=0.125, beta=0.5)
    yield GemmSignature(100, 72, 4096, dtype="fp8e5m2", c_dtype="fp32", trans_b=True)
    yield GemmSignature(100, 72, 80, dtype="bf16", c_dtype="fp8e4m3", epilogue=Epilogue(bias=True, activation="gelu"))
    for mode in MODES:  # as in training: e4m3 forward, e5m2 gradients
        types = {"input_dtype": "fp8e4m3", "kernel_dtype": "fp8e4m3", "output_dtype": "fp8e5m2"}
        yield ConvSignature((2, 12, 10, 40), (24, 3, 3, 40), mode=mode, shared_layout="NHWC", padding=1, **types)


def laid_out_problems():
    """Layouts that fast kernels do not read: each tensor's own, vectors of channels, pixels that are no 16 bytes."""
    x, w = (2, 40, 13, 12), (72, 40, 3, 3)
    for mode in MODES:
        for dtype in ("bf16", "fp32", "fp8e4m3"):
            yield ConvSignature(x, w, dtype=dtype, padding=1, mode=mode)
        yield ConvSignature((2, 35, 7, 7), (41, 35, 3, 3), dtype="fp16", padding=1, mode=mode)
        yield ConvSignature((2, 9, 8, 35), (24, 3, 3, 35), dtype="bf16", padding=1, mode=mode, shared_layout="NHWC")
        yield ConvSignature((40, 13, 12, 2), (72, 40, 3, 3), dtype="bf16", padding=1, mode=mode,
                            input_layout="CHWN", output_layout="NHWC")  # fmt: skip
        for width, dtype in ((4, "fp16"), (8, "fp16"), (8, "bf16"), (4, "fp32")):
            yield ConvSignature((2, 48 // width, 13, 12, width), (64, 48 // width, 3, 3, width), dtype=dtype, stride=2,
                                padding=1, mode=mode, shared_layout=f"NCHWc{width}")  # fmt: skip
        yield ConvSignature((2, 16, 5, 6, 7), (24, 16, 3, 3, 3), dtype="bf16", padding=1, mode=mode)
        yield ConvSignature((2, 32, 20, 22), (32, 1, 3, 3), dtype="bf16", padding=1, groups=32, mode=mode)
    yield ConvSignature((2, 12, 13, 12, 4), (64, 12, 3, 3, 4), dtype="int8", padding=1, shared_layout="NCHWc4")
    yield ConvSignature(x, w, dtype="bf16", padding=1, epilogue=Epilogue(bias=True, residual=True, activation="silu"))
