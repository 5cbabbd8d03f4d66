"""The flags of the driver's commands: names, kinds, defaults, ranges.

Facts of MIOpen 3.3.0 (``driver/conv_driver.hpp``, ``driver/gemm_driver.hpp``). Flags that MIOpen lacks have no short
name and are marked ``own``; with them every signature has a command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilesmith.problems.limits import MAX_SIZE, MAX_STRIDE

Value = int | float | str


@dataclass(frozen=True)
class Flag:
    """``kind`` is int, real, text, layout or sizes (``2x3x4``); ``least`` and ``most`` bound integers."""

    long: str
    short: str
    kind: str
    default: Value
    least: int = 0
    most: int = MAX_SIZE
    meaning: str = ""
    own: bool = False

    def __str__(self) -> str:
        return f"--{self.long} (-{self.short})" if self.short else f"--{self.long}"


def _size(long: str, short: str, default: int, meaning: str, least: int = 1) -> Flag:
    return Flag(long, short, "int", default, least, meaning=meaning)


def _choice(long: str, short: str, default: int, most: int, meaning: str, own: bool = False) -> Flag:
    return Flag(long, short, "int", default, 0, most, meaning, own)


def _text(long: str, short: str, default: str, meaning: str, own: bool = False) -> Flag:
    return Flag(long, short, "text", default, meaning=meaning, own=own)


CONV_FLAGS: tuple[Flag, ...] = (
    Flag("spatial_dim", "_", "int", 2, 1, 3, "spatial axes; 1 is our own"),
    _size("batchsize", "n", 100, "images"),
    _size("in_channels", "c", 3, "input channels"),
    _size("in_d", "!", 32, "input depth"),
    _size("in_h", "H", 32, "input height"),
    _size("in_w", "W", 32, "input width"),
    _size("out_channels", "k", 32, "output channels"),
    _size("fil_d", "@", 3, "filter depth"),
    _size("fil_h", "y", 3, "filter height"),
    _size("fil_w", "x", 3, "filter width"),
    _size("pad_d", "$", 0, "padding of the depth, both sides", 0),
    _size("pad_h", "p", 0, "padding of the height, both sides", 0),
    _size("pad_w", "q", 0, "padding of the width, both sides", 0),
    _size("conv_stride_d", "#", 1, "stride of the depth"),
    _size("conv_stride_h", "u", 1, "stride of the height"),
    _size("conv_stride_w", "v", 1, "stride of the width"),
    _size("dilation_d", "^", 1, "dilation of the depth"),
    _size("dilation_h", "l", 1, "dilation of the height"),
    _size("dilation_w", "j", 1, "dilation of the width"),
    _size("trans_output_pad_d", "%", 0, "output padding of the depth, mode trans", 0),
    _size("trans_output_pad_h", "Y", 0, "output padding of the height, mode trans", 0),
    _size("trans_output_pad_w", "X", 0, "output padding of the width, mode trans", 0),
    _text("mode", "m", "conv", "conv or trans"),
    _text("pad_mode", "z", "default", "default, same or valid"),
    _size("group_count", "g", 1, "groups; 0 means 1", 0),
    _choice(
        "forw", "F", 0, 15, "bit mask: 1 fwd, 2 bwd data, 4 bwd weights, 8 bias gradient (our own); 0 is 1 + 2 + 4"
    ),
    Flag("in_layout", "I", "layout", "", meaning="input layout"),
    Flag("fil_layout", "f", "layout", "", meaning="filter layout"),
    Flag("out_layout", "O", "layout", "", meaning="output layout"),
    _choice("tensor_vect", "Z", 0, 1, "1: channels in vectors of vector_length"),
    Flag("vector_length", "L", "int", 1, 1, 8, "4 or 8 with tensor_vect 1"),
    _text("in_cast_type", "U", "-1", "element type of the input; -1: the command's"),
    _text("wei_cast_type", "R", "-1", "element type of the filter"),
    _text("out_cast_type", "T", "-1", "element type of the output"),
    _choice("bias", "b", 0, 1, "1 adds a bias to the forward result, and its gradient to the backward directions"),
    _choice("pad_val", "r", 0, 0, "value of the padding; only 0"),
    Flag("iter", "i", "int", 10, 1, meaning="iterations"),
    _choice("time", "t", 0, 1, "1 prints times"),
    _choice("wall", "w", 0, 2, "1 prints wall-clock times, 2 with a warm-up"),
    _choice("search", "s", 0, 1, "1 searches first, for a minute at most (`--seconds`)"),
    _text("solution", "S", "-1", "below 0: find; 0: the best; else an id or a name"),
    _choice("verify", "V", 1, 1, "1 checks the result"),
    _text("verification_cache", "C", "", "folder for reference results"),
    _choice("gpualloc", "G", 0, 1, "1 makes the data on the device"),
    _choice("dump_output", "o", 0, 1, "1 writes results to files"),
    _choice("printconv", "P", 1, 1, "1 prints the problem"),
    _text("in_data", "d", "", "raw file with the input"),
    _text("weights", "e", "", "raw file with the filter"),
    _text("in_bias", "a", "", "raw file with the bias"),
    _text("dout_data", "D", "", "raw file with the output gradient"),
    Flag("in_strides", "", "sizes", "", meaning="element strides of the input, in layout order", own=True),
    Flag("fil_strides", "", "sizes", "", meaning="element strides of the filter", own=True),
    Flag("out_strides", "", "sizes", "", meaning="element strides of the output", own=True),
    _text("acc_type", "", "", "accumulation type: fp32, fp64 or tf32", own=True),
    _text("epilogue", "", "", "such as scale_channel+bias+leaky_relu(0.1), on the result of fwd and bwd", own=True),
    _choice("deterministic", "", 0, 1, "1: the same bits at each call", own=True),
    Flag("workspace_limit", "", "int", -1, -1, MAX_STRIDE, "most bytes of workspace; -1: any number", True),
)

GEMM_FLAGS: tuple[Flag, ...] = (
    _choice("forw", "F", 1, 1, "there is one direction"), _size("batch_count", "b", 1, "matrices"),
    _choice("isColMajor", "C", 0, 1, "1: matrices are column-major"), _size("a_h", "m", 256, "rows of a and c"),
    _size("a_w", "k", 256, "columns of a, rows of b"), _size("b_w", "n", 256, "columns of b and c"),
    Flag("alpha", "A", "real", 1.0, meaning="factor of the product"),
    Flag("beta", "B", "real", 0.0, meaning="factor of c as it was"),
    _choice("transA", "u", 0, 1, "1: a is stored transposed"),
    _choice("transB", "v", 0, 1, "1: b is stored transposed"), Flag("iter", "i", "int", 10, 1, meaning="iterations"),
    _choice("verify", "V", 0, 1, "1 checks the result"), _choice("time", "t", 0, 1, "1 prints times"),
    *(Flag(f"ld{x}", "", "int", 0, 0, MAX_STRIDE, "elements between rows; 0: dense", True) for x in "abc"),
    *(Flag(f"stride_{x}", "", "int", -1, -1, MAX_STRIDE, "elements between batches; -1: dense", True) for x in "abc"),
    _text("b_type", "", "", "element type of b", own=True), _text("c_type", "", "", "element type of c", own=True),
    _text("acc_type", "", "", "accumulation type: fp32, fp64 or tf32", own=True),
    _text("epilogue", "", "", "such as bias+gelu", own=True),
    _choice("deterministic", "", 0, 1, "1: the same bits at each call", own=True),
    Flag("workspace_limit", "", "int", -1, -1, MAX_STRIDE, "most bytes of workspace; -1: any number", True),
)  # fmt: skip

# Command names and the element type of their tensors. MIOpen has no fp64 commands and of GEMM only the first two.
AXES = {1: "w", 2: "hw", 3: "dhw"}  # spatial, by their number

CONV_BASES = {
    "conv": "fp32", "convfp16": "fp16", "convbfp16": "bf16", "convint8": "int8", "convfp8": "fp8e4m3",
    "convbfp8": "fp8e5m2", "convfp64": "fp64",
}  # fmt: skip
GEMM_BASES = {
    "gemm": "fp32", "gemmfp16": "fp16", "gemmbfp16": "bf16", "gemmint8": "int8", "gemmfp8": "fp8e4m3",
    "gemmbfp8": "fp8e5m2", "gemmfp64": "fp64",
}  # fmt: skip

# Commands that MIOpenDriver has besides, each with element types behind its name.
_FOREIGN_BASES = (
    "activ", "adam", "adamw", "addlayernorm", "ampadam", "ampadamw", "argmax", "argmin", "bnorm", "cat", "cbainfer",
    "ctc", "dropout", "getitem", "glu", "groupnorm", "kthvalue", "layernorm", "logsumexp", "lrn", "mha",
    "multimarginloss", "pool", "prelu", "reduce", "reducecalculation", "reduceextreme", "rnn", "rnn_seq", "rope",
    "softmarginloss", "softmax", "sum", "t5layernorm", "tensorop", "transformersadamw",
)  # fmt: skip
_TYPE_SUFFIX = re.compile(r"(fp16|bfp16|bf16|fp8|bfp8|fp32|fp64|int8)$")


def is_foreign_base(name: str) -> bool:
    """Whether MIOpenDriver has this command, such as ``bnormfp16``, and Tilesmith has no kernels for it."""
    return _TYPE_SUFFIX.sub("", name.lower()) in _FOREIGN_BASES


# Names of element types in ``--*_type`` flags.
CAST_TYPES = {
    "fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8e4m3", "bf8": "fp8e5m2", "fp64": "fp64",
    "int8": "int8", "int32": "int32",
}  # fmt: skip
ACC_TYPES = CAST_TYPES | {"tf32": "tf32"}
CAST_NAMES = {dtype: name for name, dtype in ACC_TYPES.items()}


def flags_of(base: str) -> tuple[Flag, ...]:
    """The flags of a command."""
    return CONV_FLAGS if base in CONV_BASES else GEMM_FLAGS
