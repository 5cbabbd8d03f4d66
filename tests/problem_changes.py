"""Pairs of signatures that differ in one field alone: what is kept under a problem's key must tell them apart."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature

BASE = ConvSignature(
    input_shape=(2, 9, 11, 8), kernel_shape=(12, 2, 3, 4), stride=(2, 1), padding=(1, 2), groups=2, shared_layout="NHWC"
)
TRANSPOSED = ConvSignature(
    input_shape=(2, 9, 11, 8), kernel_shape=(8, 2, 3, 6), stride=(2, 3), groups=2, transposed=True, shared_layout="NHWC"
)
GEMM = GemmSignature(m=4, n=5, k=6, batch=2)

# One other value for each field, alone. ``shared_layout`` is spelled out in the three others at construction.
CONV_CHANGES = {
    "input_shape": (2, 9, 13, 8),
    "kernel_shape": (12, 2, 2, 4),
    "stride": (1, 1),
    "padding": (1, 1),
    "dilation": (1, 2),
    "groups": None,
    "transposed": None,
    "output_padding": None,
    "mode": "wrw",
    "dtype": None,
    "input_dtype": "bf16",
    "kernel_dtype": "bf16",
    "output_dtype": "bf16",
    "acc_dtype": "fp64",
    "shared_layout": None,
    "input_layout": "NWHC",
    "kernel_layout": "NWHC",
    "output_layout": "NCHW",
    "input_strides": (1000, 100, 9, 1),
    "kernel_strides": (32, 12, 4, 1),
    "output_strides": (1100, 200, 13, 1),
    "epilogue": Epilogue(bias=True),
    "deterministic": True,
    "workspace_limit": 0,
}


def conv_changes() -> dict[str, tuple[ConvSignature, ConvSignature]]:
    pairs = {name: (BASE, replace(BASE, **{name: value})) for name, value in CONV_CHANGES.items() if value is not None}
    square = replace(BASE, kernel_shape=(8, 2, 3, 4), stride=(1, 1), padding=(0, 1))
    narrow = replace(BASE, output_dtype="fp8e4m3")
    for kind in ("tensor", "channel"):
        pairs[f"scale {kind}"] = (narrow, replace(narrow, epilogue=Epilogue(scale=kind)))
    pairs["scale of which"] = (pairs["scale tensor"][1], pairs["scale channel"][1])
    pairs["padding high"] = (BASE, replace(BASE, padding=((1, 2), (2, 2))))
    pairs["transposed"] = (square, replace(square, transposed=True))
    pairs["output_padding"] = (TRANSPOSED, replace(TRANSPOSED, output_padding=(1, 0)))
    one_group = replace(BASE, kernel_shape=(12, 2, 3, 8), groups=1)
    pairs["groups"] = (BASE, one_group)
    pairs["mode bwd"] = (BASE, replace(BASE, mode="bwd"))
    pairs["mode bgrad"] = (BASE, replace(BASE, mode="bgrad"))
    plain = Epilogue()
    for label, epilogue in {
        "residual": Epilogue(residual=True),
        "activation": Epilogue(activation="silu"),
        "slope": Epilogue(activation="leaky_relu", slope=0.3),
        "clamp": Epilogue(activation="clamp", high=5.0),
    }.items():
        pairs[f"epilogue {label}"] = (replace(BASE, epilogue=plain), replace(BASE, epilogue=epilogue))
    slopes = [Epilogue(activation="leaky_relu", slope=slope) for slope in (0.1, 0.1000000001)]
    pairs["close slopes"] = (replace(BASE, epilogue=slopes[0]), replace(BASE, epilogue=slopes[1]))
    limits = [Epilogue(activation="clamp", low=low) for low in (-1.0, 1.0)]
    pairs["clamp low"] = (replace(BASE, epilogue=limits[0]), replace(BASE, epilogue=limits[1]))
    return pairs


GEMM_CHANGES = {
    "m": 7, "n": 7, "k": 7, "batch": 3, "trans_a": True, "trans_b": True, "a_dtype": "bf16", "b_dtype": "bf16",
    "c_dtype": "bf16", "acc_dtype": "fp64", "alpha": 2.0, "beta": 1.0, "lda": 9, "ldb": 9, "ldc": 9, "stride_a": 100,
    "stride_b": 0, "stride_c": 100, "epilogue": Epilogue(bias=True), "deterministic": True,
    "workspace_limit": 4096, "groups": 3, "a_scale": "128x128", "b_scale": "128x128",
}  # fmt: skip


def gemm_changes() -> dict[str, tuple[GemmSignature, GemmSignature]]:
    alone = replace(GEMM, batch=1)  # groups of rows and scaled operands have no batch
    scaled = replace(alone, dtype="fp8e5m2", a_dtype="", b_dtype="", c_dtype="", a_scale="1x128", b_scale="1x128")
    bases = {"groups": alone, "a_scale": scaled, "b_scale": scaled}
    bases = {name: bases.get(name, GEMM) for name in GEMM_CHANGES}
    return {name: (bases[name], replace(bases[name], **{name: value})) for name, value in GEMM_CHANGES.items()}
