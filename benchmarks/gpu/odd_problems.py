"""Small and odd problems: tails in every loop, strides, dilations, groups, 1-D to 3-D, all dtypes and epilogues.

Between them they reach every branch of every family's kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    ((2, 19, 32, 72), (3, 5, 4, 72), {"padding": ((2, 1), (0, 3))}),
    ((2, 12, 10, 48), (96, 3, 3, 12), {"padding": 1, "groups": 4}),
    ((2, 12, 10, 80), (80, 3, 3, 1), {"padding": 1, "groups": 80}),
    ((1, 5, 6, 7, 32), (40, 3, 3, 3, 32), {"padding": 1}),
    ((1, 5, 21, 62, 3), (40, 3, 7, 7, 3), {"padding": (1, 3, 3), "stride": (1, 2, 2)}),
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


GROUPED_VOLUMES = (
    # channels of a group of input and output, groups, filter, options
    (4, 4, 8, (3, 3, 3), {"padding": 1}),
    (8, 4, 6, (3, 2, 3), {"padding": ((1, 0), (1, 1), (0, 2)), "stride": (2, 1, 2)}),
    (3, 8, 8, (2, 3, 3), {"padding": 1, "dilation": (2, 1, 1)}),
    (24, 16, 2, (3, 3, 1), {"padding": (1, 1, 0), "stride": (1, 2, 1)}),
)


def odd_problems() -> Iterator[ConvSignature | GemmSignature]:
    """All of them."""
    yield from mixed_problems()
    yield from row_group_problems()
    yield from wide_problems()
    yield from fused_problems()
    yield from depthwise_problems()
    yield from thin_problems()
    yield from unaligned_problems()


def mixed_problems():
    """The first shapes in more dtypes than the others."""
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


KINDS = (("1x128", "128x128"), ("128x128", "1x128"), ("1x128", "1x128"), ("128x128", "128x128"), ("tensor", "tensor"))


def typed_problems():
    """What tensor cores multiply beside 16-bit floats: loads of every width, each operand by k and not."""
    for types in TYPES:
        for trans_a, trans_b in ((False, False), (False, True), (True, False), (True, True)):
            yield GemmSignature(131, 77, 93, trans_a=trans_a, trans_b=trans_b, lda=208, ldb=208, ldc=100, **types)
            yield GemmSignature(256, 320, 544, trans_a=trans_a, trans_b=trans_b, **types)
            for of_a, of_b in KINDS if types["dtype"] == "fp8e4m3" else ():
                scaled = {"c_dtype": "bf16", "a_scale": of_a, "b_scale": of_b}
                yield GemmSignature(131, 200, 272, trans_a=trans_a, trans_b=trans_b, **types, **scaled)
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
    for scale in ("none", "tensor", "channel"):
        dotted = {"dtype": "int8", "shared_layout": "NHWC", "padding": 1, "epilogue": Epilogue(scale=scale)}
        yield ConvSignature((2, 12, 13, 40), (40, 3, 3, 1), groups=40, **dotted)
        yield GemmSignature(100, 72, 80, dtype="fp8e4m3", trans_b=True, epilogue=Epilogue(bias=True, scale=scale))
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


def row_group_problems():
    """Products of groups of rows: uneven ones, some empty; whole pieces of 16 bytes a row, and not."""
    for dtype in ("bf16", "fp16", "fp8e4m3", "fp32"):
        for trans_b in (False, True):
            yield GemmSignature(133, 72, 80, groups=5, dtype=dtype, trans_b=trans_b)
            yield GemmSignature(70, 33, 45, groups=3, dtype=dtype, trans_b=trans_b)


def _gemm(m, n, k, ta=False, tb=False, dtype="bf16", out=None, **more):
    return GemmSignature(
        m=m, n=n, k=k, trans_a=ta, trans_b=tb, a_dtype=dtype, b_dtype=dtype, c_dtype=out or dtype, **more
    )


def _conv(x, w, mode="fwd", layout="", dtype="bf16", **more):
    """Channels last, unless ``layout`` says otherwise."""
    layout = layout or {3: "NWC", 4: "NHWC", 5: "NDHWC"}[len(x)]
    return ConvSignature(input_shape=x, kernel_shape=w, mode=mode, shared_layout=layout, dtype=dtype, **more)


FULL = Epilogue(bias=True, activation="gelu", residual=True)


def wide_problems():
    """Rows of 16 bytes, as the kernels with tensor copies want them."""
    g = _gemm
    yield g(256, 192, 320)
    yield g(256, 192, 320, tb=True)
    yield g(200, 136, 328, ta=True)
    yield g(200, 136, 328, ta=True, tb=True)
    yield g(333, 1000, 72, dtype="fp16")
    yield g(1, 512, 1024)
    yield g(16, 1032, 2048, tb=True)
    yield g(5, 264, 4096, tb=True, epilogue=FULL)
    yield g(96, 256, 512, epilogue=FULL, dtype="fp16")
    yield g(300, 328, 200, alpha=0.5, beta=-1.5)
    yield g(300, 327, 200, tb=True, alpha=2.0, beta=1.0)
    yield g(130, 201, 136, tb=True, out="fp32", epilogue=Epilogue(bias=True, activation="silu"))
    yield g(128, 72, 136, batch=5, tb=True)
    yield g(72, 200, 104, batch=3, ta=True)
    yield g(520, 264, 328)
    yield g(328, 200, 2048, dtype="fp16", epilogue=Epilogue(bias=True, activation="relu"))
    yield g(400, 136, 1032, batch=2, epilogue=FULL)
    yield g(37, 1096, 2056, alpha=0.5, beta=0.25)
    yield g(1, 4096, 4096)
    yield g(3000, 264, 200, tb=True)
    yield g(1111, 512, 256)
    yield g(20040, 136, 200, epilogue=Epilogue(bias=True, activation="relu"))
    yield g(17000, 264, 72, tb=True, dtype="fp16")
    yield g(384, 2048, 1024, lda=1032, ldb=2056, ldc=2056, epilogue=Epilogue(bias=True, activation="relu"))
    c = _conv
    for mode in MODES:
        yield c((3, 13, 11, 72), (40, 3, 3, 72), mode, padding=1)
        yield c((2, 17, 14, 64), (96, 3, 3, 64), mode, padding=1, stride=2)
        yield c((2, 18, 20, 24), (200, 5, 3, 24), mode, padding=(2, 0), stride=(2, 3))
        yield c((4, 15, 16, 128), (128, 3, 3, 128), mode, padding=2, dilation=2, dtype="fp16")
        yield c((2, 16, 16, 96), (64, 1, 1, 96), mode, stride=2)
        yield c((8, 14, 14, 256), (256, 3, 3, 256), mode, padding=1)
        yield c((2, 6, 9, 10, 40), (48, 3, 3, 3, 40), mode, "NDHWC", padding=1)
        yield c((1, 7, 8, 12, 16), (32, 2, 3, 2, 16), mode, "NDHWC", padding=(0, 1, 1), stride=(2, 1, 2))
        yield c((3, 50, 64), (72, 5, 64), mode, "NWC", padding=3, dilation=2, stride=2)
        yield c((2, 12, 12, 64), (64, 4, 4, 64), mode, padding=1, stride=2)
    # Large enough that planes are left out forward, too, where a kernel looks at the filter before.
    yield c((1, 1, 51, 51, 256), (256, 3, 3, 3, 256), "fwd", "NDHWC", padding=1)
    yield c((2, 9, 37, 24), (72, 3, 3, 24), "wrw")
    yield c((2, 20, 19, 64), (136, 5, 7, 64), "wrw", padding=(2, 3))
    yield c((3, 21, 12, 40), (16, 7, 1, 40), "wrw", padding=(3, 0), dilation=(2, 1))
    yield c((2, 5, 9, 13, 32), (32, 3, 3, 3, 32), "wrw", "NDHWC", padding=(2, 1, 1), dilation=(2, 1, 1))
    yield c((1, 6, 300, 64), (64, 3, 3, 64), "wrw", padding=1)
    yield c((4, 50, 64), (72, 5, 64), "wrw", "NWC", padding=2)
    yield c((3, 22, 40, 3), (72, 5, 5, 3), "wrw", padding=2, stride=2)
    yield c((2, 13, 56, 1), (40, 5, 5, 1), "wrw", padding=1, dtype="fp16")
    yield c((2, 14, 14, 64), (3, 3, 3, 64), padding=1)
    yield c((40, 40, 40, 64), (72, 1, 1, 64), stride=2)  # columns stay
    yield c((16, 28, 28, 32), (40, 3, 3, 32), padding=1)
    yield c((2, 14, 14, 64), (72, 3, 3, 64), padding=1, epilogue=FULL)
    yield c((2, 14, 14, 64), (72, 3, 3, 64), "bwd", padding=1, stride=2, epilogue=FULL)
    yield c((2, 14, 14, 64), (72, 3, 3, 64), "bwd", padding=1, epilogue=Epilogue(activation="clamp"))


def fused_problems():
    """Bias, residual and factor where results leave through tensor maps: whole tiles, tails, several tiles a block."""
    g, c, short = _gemm, _conv, Epilogue(bias=True, activation="relu")
    yield g(300, 328, 200, alpha=0.5, epilogue=short)
    yield g(300, 328, 200, tb=True, alpha=-2.0, epilogue=FULL)
    yield g(20040, 256, 72, epilogue=FULL)
    yield g(9000, 200, 136, tb=True, epilogue=Epilogue(residual=True), dtype="fp16")
    yield g(2000, 104, 520, batch=3, epilogue=FULL)
    yield g(500, 320, 264, ldc=336, epilogue=FULL)
    yield c((16, 28, 28, 64), (256, 1, 1, 64), epilogue=FULL)
    yield c((8, 14, 14, 256), (256, 3, 3, 256), padding=1, epilogue=FULL)
    yield c((3, 15, 13, 72), (40, 3, 3, 72), padding=1, epilogue=FULL, dtype="fp16")
    yield c((2, 6, 9, 10, 40), (72, 3, 3, 3, 40), "fwd", "NDHWC", padding=1, epilogue=FULL)
    yield c((2, 32, 32, 32), (64, 7, 7, 32), padding=3, epilogue=FULL)
    yield c((2, 32, 32, 32), (64, 7, 7, 32), padding=3)
    yield c((4, 18, 20, 64), (136, 3, 3, 64), "bwd", padding=1, epilogue=Epilogue(residual=True))
    yield c((2, 20, 18, 48), (64, 5, 5, 48), "bwd", padding=1, epilogue=FULL)
    yield c((3, 50, 64), (72, 5, 64), "fwd", "NWC", padding=2, epilogue=FULL)


def unaligned_problems():
    """Rows that are no 16 bytes, alone and beside a gap that belongs to the user; few channels; few images."""
    for dtype in ("bf16", "fp32"):
        for ta in (False, True):
            for tb in (False, True):
                yield _gemm(131, 77, 93, ta, tb, dtype=dtype, lda=200, ldb=202, ldc=100)
        yield _gemm(70, 66, 4098, dtype=dtype, epilogue=FULL)
        yield _gemm(1, 77, 96, tb=True, dtype=dtype)
        yield _gemm(5, 77, 96, tb=True, ldc=80, dtype=dtype)
        yield _gemm(33, 129, 100, batch=3, tb=True, alpha=0.5, beta=2.0, dtype=dtype)
        for mode in MODES:
            yield _conv((3, 9, 11, 7), (5, 3, 3, 7), mode, padding=1, dtype=dtype)
            yield _conv((2, 15, 17, 36), (44, 3, 2, 36), mode, padding=(2, 1), stride=(3, 2), dtype=dtype)
            yield _conv((2, 12, 13, 22), (26, 2, 3, 22), mode, padding=1, dilation=(2, 3), dtype=dtype)
            yield _conv((2, 20, 20, 3), (24, 7, 7, 3), mode, padding=3, stride=2, dtype=dtype)
            yield _conv((2, 14, 14, 64), (96, 3, 3, 16), mode, padding=1, groups=4, dtype=dtype)
            yield _conv((2, 9, 9, 30), (20, 3, 3, 3), mode, padding=1, groups=10, stride=2, dtype=dtype)
            yield _conv((2, 9, 8, 72), (120, 3, 2, 24), mode, padding=1, groups=3, stride=2, dtype=dtype)
            yield _conv((2, 7, 6, 80), (144, 1, 1, 40), mode, groups=2, dtype=dtype)
            yield _conv((2, 5, 7, 6, 12), (10, 3, 2, 3, 12), mode, "NDHWC", padding=1, stride=(2, 1, 2), dtype=dtype)
            yield _conv((2, 37, 20), (33, 5, 20), mode, "NWC", padding=2, dilation=3, dtype=dtype)
            yield _conv((2, 24, 14, 14), (40, 24, 3, 3), mode, "NCHW", padding=1, stride=2, dtype=dtype)
            yield _conv((3, 72, 8, 9), (40, 72, 1, 1), mode, "NCHW", dtype=dtype)
            yield _conv((2, 14, 14, 24), (40, 24, 3, 3), mode, "", input_layout="NHWC", output_layout="NHWC",
                        kernel_layout="NCHW", padding=1, dtype=dtype)  # fmt: skip
            yield _conv((2, 8, 8, 35), (40, 1, 1, 35), mode, input_strides=(8 * 8 * 40, 8 * 40, 40, 1), dtype=dtype)
            yield _conv((2, 6, 6, 16), (16, 2, 2, 16), mode, stride=3, dtype=dtype)
            # Rows of the result that are no 16 bytes: a single one, and with a gap that belongs to the user.
            yield _conv((1, 3, 3, 35), (37, 3, 3, 35), mode, dtype=dtype)
            yield _conv((2, 7, 8, 37), (45, 3, 3, 37), mode, padding=1, input_strides=(7 * 8 * 40, 8 * 40, 40, 1),
                        output_strides=(7 * 8 * 48, 8 * 48, 48, 1), kernel_strides=(9 * 40, 3 * 40, 40, 1),
                        dtype=dtype)  # fmt: skip
        yield _conv((2, 13, 14, 20), (72, 3, 3, 20), padding=1, epilogue=FULL, dtype=dtype)
        yield _conv((2, 13, 14, 20), (72, 3, 3, 20), "bwd", padding=1, stride=2, epilogue=FULL, dtype=dtype)
        yield _conv((2, 13, 14, 20), (72, 3, 3, 10), "bwd", padding=1, groups=2, dtype=dtype,
                    epilogue=Epilogue(bias=True, activation="clamp"))  # fmt: skip
    yield _conv((2, 12, 12, 20), (33, 3, 3, 20), padding=1, output_dtype="fp32")


def thin_problems():
    """Few channels on both sides, in rows without gaps."""
    for dtype in ("bf16", "fp16"):
        yield _gemm(5003, 35, 35, tb=True, dtype=dtype)
        yield _gemm(35, 35, 5003, ta=True, dtype=dtype)
    for m, n, k in ((4099, 128, 3), (3001, 17, 250), (999, 64, 64), (2050, 100, 36), (70, 1, 33)):
        yield _gemm(m, n, k)
        yield _gemm(n, min(k, 127), m, ta=True)
    yield _gemm(4001, 66, 35, epilogue=Epilogue(bias=True, activation="gelu"), alpha=0.5)
    yield _gemm(33, 50, 4001, ta=True, epilogue=Epilogue(bias=True, activation="silu"), alpha=0.5)
    yield _gemm(4001, 33, 35, out="fp32")
    # A residual: rows of it and of the operand with gaps in shared memory, and without; several slabs a warp.
    for m, n, k in ((4001, 16, 16), (40001, 24, 72), (40001, 33, 64), (40001, 64, 63), (4003, 101, 17)):
        yield _gemm(m, n, k, tb=True, epilogue=FULL)
    yield _gemm(40001, 35, 33, epilogue=Epilogue(residual=True), alpha=0.5, dtype="fp16")
    yield _gemm(4001, 48, 72, out="fp32", epilogue=FULL)
    yield _conv((3, 37, 41, 120), (40, 1, 1, 120), epilogue=FULL)
    yield _conv((3, 37, 41, 16), (40, 1, 1, 16), "bwd", epilogue=FULL)


def depthwise_problems():
    """Of 6 to 72 channels, in two and three dimensions; and groups of few channels in three."""
    for dtype in ("bf16", "fp16", "fp32"):
        for mode in MODES:

            def one(c, size, taps, **more):
                return _conv((2, *size, c), (c, *taps, 1), mode, groups=c, dtype=dtype, **more)  # noqa: B023

            yield one(40, (13, 15), (3, 3), padding=1)
            yield one(35, (11, 9), (3, 3), padding=1, stride=2)
            yield one(34, (14, 16), (5, 4), padding=(2, 1), stride=(1, 2))
            yield one(72, (17, 12), (7, 7), padding=3)
            yield one(40, (18, 19), (3, 3), padding=2, dilation=2)
            yield one(40, (18, 19), (3, 2), padding=0, dilation=(3, 2), stride=(2, 3))
            yield one(34, (9, 9), (2, 2), stride=3)
            yield one(34, (12, 15), (13, 12), padding=6)
            yield one(35, (9, 14), (12, 13), padding=(6, 10), stride=2, dilation=(1, 2))
            yield one(6, (5, 8, 9), (3, 3, 3), padding=1, stride=(1, 2, 2))
            yield one(40, (6, 7, 5), (2, 3, 2), padding=((1, 0), (0, 2), (1, 1)), dilation=(2, 1, 3))
            yield one(34, (7, 6, 9), (3, 7, 7), padding=3, stride=(2, 1, 1))
            for inputs, outputs, groups, taps, more in GROUPED_VOLUMES:
                yield _conv(
                    (2, 6, 9, 7, inputs * groups), (outputs * groups, *taps, inputs), mode, groups=groups, dtype=dtype,
                    **more,
                )  # fmt: skip
    for mode in ("fwd", "bwd"):
        yield _conv((2, 12, 13, 40), (40, 3, 3, 1), mode, groups=40, padding=1, epilogue=FULL)
