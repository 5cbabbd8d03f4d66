"""Small and odd problems that between them reach every branch of the portable kernel."""

from sm90_cases import FULL, _conv, _gemm
from sm90_cases import problems as aligned

from tilesmith.problems.epilogue import Epilogue

MODES = ("fwd", "bwd", "wrw")


def problems():
    """``(signature, NaN planted too)``."""
    yield from aligned()
    yield from depthwise()
    yield from thin()
    for dtype in ("bf16", "fp32"):
        for ta in (False, True):
            for tb in (False, True):
                yield _gemm(131, 77, 93, ta, tb, dtype=dtype, lda=200, ldb=202, ldc=100), True
        yield _gemm(70, 66, 4098, dtype=dtype, epilogue=FULL), False
        yield _gemm(1, 77, 96, tb=True, dtype=dtype), False
        yield _gemm(5, 77, 96, tb=True, ldc=80, dtype=dtype), True
        yield _gemm(33, 129, 100, batch=3, tb=True, alpha=0.5, beta=2.0, dtype=dtype), False
        for mode in MODES:
            yield _conv((3, 9, 11, 7), (5, 3, 3, 7), mode, padding=1, dtype=dtype), True
            yield _conv((2, 15, 17, 36), (44, 3, 2, 36), mode, padding=(2, 1), stride=(3, 2), dtype=dtype), True
            yield _conv((2, 12, 13, 22), (26, 2, 3, 22), mode, padding=1, dilation=(2, 3), dtype=dtype), True
            yield _conv((2, 20, 20, 3), (24, 7, 7, 3), mode, padding=3, stride=2, dtype=dtype), True
            yield _conv((2, 14, 14, 64), (96, 3, 3, 16), mode, padding=1, groups=4, dtype=dtype), True
            yield _conv((2, 9, 9, 30), (20, 3, 3, 3), mode, padding=1, groups=10, stride=2, dtype=dtype), True
            yield (
                _conv((2, 5, 7, 6, 12), (10, 3, 2, 3, 12), mode, "NDHWC", padding=1, stride=(2, 1, 2), dtype=dtype),
                True,
            )
            yield _conv((2, 37, 20), (33, 5, 20), mode, "NWC", padding=2, dilation=3, dtype=dtype), True
            yield _conv((2, 24, 14, 14), (40, 24, 3, 3), mode, "NCHW", padding=1, stride=2, dtype=dtype), True
            yield _conv((2, 14, 14, 24), (40, 24, 3, 3), mode, "", input_layout="NHWC", output_layout="NHWC",
                        kernel_layout="NCHW", padding=1, dtype=dtype), False  # fmt: skip
            yield (
                _conv((2, 8, 8, 35), (40, 1, 1, 35), mode, input_strides=(8 * 8 * 40, 8 * 40, 40, 1), dtype=dtype),
                True,
            )
            yield _conv((2, 6, 6, 16), (16, 2, 2, 16), mode, stride=3, dtype=dtype), True
            # Rows of the result that are no 16 bytes: a single one, and with a gap that belongs to the user.
            yield _conv((1, 3, 3, 35), (37, 3, 3, 35), mode, dtype=dtype), False
            yield _conv((2, 7, 8, 37), (45, 3, 3, 37), mode, padding=1, input_strides=(7 * 8 * 40, 8 * 40, 40, 1),
                        output_strides=(7 * 8 * 48, 8 * 48, 48, 1), kernel_strides=(9 * 40, 3 * 40, 40, 1),
                        dtype=dtype), True  # fmt: skip
        yield _conv((2, 13, 14, 20), (72, 3, 3, 20), padding=1, epilogue=FULL, dtype=dtype), False
        yield _conv((2, 13, 14, 20), (72, 3, 3, 20), "bwd", padding=1, stride=2, epilogue=FULL, dtype=dtype), True
        yield _conv((2, 13, 14, 20), (72, 3, 3, 10), "bwd", padding=1, groups=2, dtype=dtype,
                    epilogue=Epilogue(bias=True, activation="clamp")), True  # fmt: skip
    yield _conv((2, 12, 12, 20), (33, 3, 3, 20), padding=1, output_dtype="fp32"), False


def thin():
    """Few channels on both sides, in rows without gaps."""
    for dtype in ("bf16", "fp16"):
        yield _gemm(5003, 35, 35, tb=True, dtype=dtype), True
        yield _gemm(35, 35, 5003, ta=True, dtype=dtype), True
    for m, n, k in ((4099, 128, 3), (3001, 17, 250), (999, 64, 64), (2050, 100, 36), (70, 1, 33)):
        yield _gemm(m, n, k), True
        yield _gemm(n, min(k, 127), m, ta=True), True
    yield _gemm(4001, 66, 35, epilogue=Epilogue(bias=True, activation="gelu"), alpha=0.5), False
    yield _gemm(33, 50, 4001, ta=True, epilogue=Epilogue(bias=True, activation="silu"), alpha=0.5), False
    yield _gemm(4001, 33, 35, out="fp32"), False


def depthwise():
    """Of 34, 35, 40 or 72 channels."""
    for dtype in ("bf16", "fp16", "fp32"):
        for mode in MODES:

            def one(c, size, taps, **more):
                return _conv((2, *size, c), (c, *taps, 1), mode, groups=c, dtype=dtype, **more), True  # noqa: B023

            yield one(40, (13, 15), (3, 3), padding=1)
            yield one(35, (11, 9), (3, 3), padding=1, stride=2)
            yield one(34, (14, 16), (5, 4), padding=(2, 1), stride=(1, 2))
            yield one(72, (17, 12), (7, 7), padding=3)
            yield one(40, (18, 19), (3, 3), padding=2, dilation=2)
            yield one(40, (18, 19), (3, 2), padding=0, dilation=(3, 2), stride=(2, 3))
            yield one(34, (9, 9), (2, 2), stride=3)
    for mode in ("fwd", "bwd"):
        yield _conv((2, 12, 13, 40), (40, 3, 3, 1), mode, groups=40, padding=1, epilogue=FULL), True
