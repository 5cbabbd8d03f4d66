"""The driver grammar: every real command parses, prints back and parses again; bad ones say what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from problem_strategies import conv_signatures, gemm_signatures

from tilesmith.errors import CommandError, FileFormatError
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver import (
    ConvParser,
    command_of,
    command_or_key,
    parse_command,
    parse_problem,
    read_commands,
)
from tilesmith.problems.driver.flags import CONV_FLAGS, GEMM_FLAGS
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.keys import parse_key

LISTS = sorted((Path(__file__).parents[2] / "benchmarks" / "problems").glob("*.txt"))

# As MIOpen's users and tests write them.
REAL = [
    "conv --batchsize 128 --spatial_dim 2 --pad_h 0 --pad_w 0 --pad_d 0 --conv_stride_h 1 --conv_stride_w 1 "
    "--conv_stride_d 0 --dilation_h 1 --dilation_w 1 --dilation_d 0 --group_count 1 --mode conv --pad_mode default "
    "--trans_output_pad_h 0 --trans_output_pad_w 0 --trans_output_pad_d 0 --out_layout NCHW --in_d 1 --in_h 14 "
    "--in_w 14 --fil_d 1 --fil_h 1 --fil_w 1 --in_channels 1024 --out_channels 256 --forw 4",
    "conv -n 1 -c 16 --in_d 4 -H 161 -W 700 -k 16 --fil_d 3 -y 11 -x 11 --pad_d 1 -p 1 -q 1 --conv_stride_d 1 -u 1 "
    "-v 1 --dilation_d 1 -l 1 -j 1 --spatial_dim 3 -m conv -g 1 -F 0 -V 1\t# conv3d_test.cpp",
    "conv -n 16 -c 64 --in_d 3 -H 4 -W 4 -k 128 --fil_d 1 -y 3 -x 3 --pad_d 0 -p 0 -q 0 --conv_stride_d 1 -u 2 -v 3 "
    "--dilation_d 1 -l 2 -j 3 --spatial_dim 3 -m trans -g 4 -F 0 -V 1\t# conv_3d.cpp",
    "convfp16 -n 16 -c 16 -H 25 -W 25 -k 64 -y 3 -x 3 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -Z 1 -L 4 --in_layout NCHW "
    "--fil_layout CHWN --out_layout NCHW -m conv -g 1 -F 1 -V 1\t# conv_igemm_dynamic_dlops.cpp",
    "conv -n 8 -c 512 -H 14 -W 14 -k 512 -y 1 -x 1 -p 0 -q 0 -u 2 -v 2 -l 1 -j 1 -z same -m trans -g 1 -F 0 -V 1",
    "./bin/MIOpenDriver convbfp16 -m trans -x 20 -y 5 -W 700 -H 161 -c 1 -n 4 -k 32 -p 0 -q 0 -u 2 -v 2 -l 1 -j 1 -g 1",
    "conv -n 1 -c 8 --in_layout nhwc -f nhwc -O nhwc -H 8 -W 8 -k 8 -g 0 -F 7 -b 1 -t 1 -w 1 -s 1 -S ConvAsm1x1U -i 3",
    "convint8 -n 1 -c 8 -H 8 -W 8 -k 8",
    "conv -_ 3 -! 5 -@ 3 -# 2 -$ 1 -^ 1 -% 0 -n 1 -c 2 -H 5 -W 5 -k 2",
    "gemm -m 3 -k 4 -n 5 -u 1 -v 1 -A 0.5 -B -2 -b 3 -i 7 -V 1 -t 1",
    "gemmfp16 --a_h 512 --a_w 640 --b_w 256 --transA 0 --transB 1 -t 1",
    "gemm -C 1 -m 3 -k 4 -n 5 -v 1",
]


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_problem_lists(path):
    lines = list(read_commands(path))
    assert lines
    for line in lines:
        assert line.error is None
        check_round_trip(line.text)


@pytest.mark.parametrize("text", REAL)
def test_real_commands(text):
    check_round_trip(text)


def check_round_trip(text: str) -> None:
    command = parse_problem(text)
    again = parse_problem(command.print())
    assert again.signatures == command.signatures
    assert again.options == command.options
    for direction, signature in command.signatures:
        grouped = isinstance(signature, GemmSignature) and signature.groups > 0  # no command names them
        said = signature.key() if grouped else command_of(signature)
        assert parse_problem(said).signatures == ((direction, signature),)
        assert parse_key(signature.key()) == signature.canonical


@given(conv_signatures())
@settings(max_examples=200, deadline=None)
def test_every_convolution_has_a_command(sig):
    if sig.padding_low != sig.padding_high:
        with pytest.raises(CommandError, match="pad both sides alike"):
            command_of(sig)
        listed, canonical = command_or_key(sig), sig.canonical
        assert parse_problem(listed).signatures == ((canonical.mode, canonical),)
        assert (listed == sig.key()) == (canonical.padding_low != canonical.padding_high)
        return
    assert parse_command(command_of(sig)).signatures == ((sig.mode, sig),)
    assert ConvParser.command_to_signature(command_of(sig)) == sig


@given(gemm_signatures())
@settings(max_examples=200, deadline=None)
def test_every_gemm_has_a_command(sig):
    assert parse_command(command_of(sig)).signatures == (("fwd", sig),)


def first(text: str) -> ConvSignature:
    sig = parse_command(text).signatures[0][1]
    assert isinstance(sig, ConvSignature)
    return sig


def test_defaults():
    command = parse_command("conv")
    assert [direction for direction, _ in command.signatures] == ["fwd", "bwd", "wrw"]
    assert first("conv") == ConvSignature(input_shape=(100, 3, 32, 32), kernel_shape=(32, 3, 3, 3))
    assert command.options.verify
    assert not command.options.time
    assert command.options.iterations == 10
    gemm = parse_command("gemm")
    assert gemm.signatures == (("fwd", GemmSignature(256, 256, 256)),)
    assert not gemm.options.verify
    assert gemm["a_h"] == 256


@pytest.mark.parametrize(
    ("mask", "directions"),
    [(0, "fwd bwd wrw"), (1, "fwd"), (2, "bwd"), (3, "fwd bwd"), (4, "wrw"), (5, "fwd wrw"), (6, "bwd wrw"),
     (7, "fwd bwd wrw"), (8, "bgrad"), (9, "fwd bgrad")],
)  # fmt: skip
def test_directions(mask, directions):
    assert [d for d, s in parse_command(f"conv -F {mask}").signatures if s.mode == d] == directions.split()


def test_bias():
    assert [d for d, _ in parse_command("conv -b 1").signatures] == ["fwd", "bwd", "wrw", "bgrad"]
    assert [d for d, _ in parse_command("conv -b 1 -F 1").signatures] == ["fwd"]
    signatures = dict(parse_command("conv -b 1 --epilogue relu").signatures)
    assert signatures["fwd"].epilogue == Epilogue(bias=True, activation="relu")
    assert signatures["bwd"].epilogue == Epilogue(activation="relu")
    assert signatures["wrw"].epilogue.is_identity


def test_last_duplicate_wins():
    assert first("conv -n 5 --batchsize 7 -n 2").input_shape[0] == 2
    assert first("conv -n 5 -n 2 --batchsize 7").input_shape[0] == 7


def test_transposed_filter_shape():
    sig = first("conv -m trans -c 6 -k 4 -g 2 -y 2 -x 3 -u 2 -v 2 -Y 1 -H 5 -W 5")
    assert sig.kernel_shape == (6, 2, 2, 3)
    assert sig.output_shape == (100, 4, 11, 11)


def test_layouts():
    sig = first("conv -n 2 -c 4 -H 5 -W 6 -k 8 -g 2 --out_layout nhwc --fil_layout chwn")
    assert (sig.input_layout, sig.kernel_layout, sig.output_layout) == ("NCHW", "CHWN", "NHWC")
    assert (sig.input_shape, sig.kernel_shape, sig.output_shape) == ((2, 4, 5, 6), (2, 3, 3, 8), (2, 3, 4, 8))
    assert first("conv -I NDHWC").spatial_dims == 3
    assert first("conv -_ 1 -H 0 -u 0").input_shape == (100, 3, 32)


def test_vectors():
    sig = first("convfp16 -n 2 -c 8 -H 5 -W 6 -k 16 -Z 1 -L 4 --fil_layout CHWN")
    assert (sig.input_layout, sig.kernel_layout, sig.output_layout) == ("NCHWc4", "CHWNc4", "NCHWc4")
    assert sig.input_shape == (2, 2, 5, 6, 4)
    assert sig.kernel_shape == (2, 3, 3, 16, 4)
    assert sig.output_shape == (2, 4, 3, 4, 4)
    assert "-Z 1 -L 4" in command_of(sig).replace("--tensor_vect", "-Z").replace("--vector_length", "-L")


@pytest.mark.parametrize(
    ("size", "tap", "stride", "pad"), [(8, 3, 1, 1), (8, 3, 2, 0), (9, 5, 2, 2), (7, 2, 3, 0), (32, 7, 2, 2)]
)
def test_same_padding(size, tap, stride, pad):
    text = f"conv -H {size} -W {size} -y {tap} -x {tap} -u {stride} -v {stride} -p 5 -q 5 -z"
    assert first(f"{text} same").padding == (pad, pad)
    assert first(f"{text} valid").padding == (0, 0)
    assert first(f"{text} same -m trans -p 0 -q 0").padding == (0, 0)
    if tap > 2:
        assert first(f"{text} same -l 2 -j 1").padding == (5, 5)


def test_dtypes():
    sig = first("conv -U fp16 -R bf16 -T fp8")
    assert (sig.input_dtype, sig.kernel_dtype, sig.output_dtype) == ("fp16", "bf16", "fp8e4m3")
    assert first("convbfp8").input_dtype == "fp8e5m2"
    assert first("convint8").output_dtype == "int32"
    assert [d for d, _ in parse_command("convint8 -F 0").signatures] == ["fwd"]


def test_column_major():
    (_, row), (_, column) = (parse_command(f"gemm -m 3 -k 4 -n 5 -v 1 -C {c}").signatures[0] for c in (0, 1))
    assert row == GemmSignature(m=3, n=5, k=4, trans_b=True)
    assert column == GemmSignature(m=5, n=3, k=4, trans_a=True)


def test_depth_flags_of_2d_commands_are_ignored():
    plain = first("conv -n 1 -F 1")
    assert first("conv -n 1 -F 1 --conv_stride_d 0 --dilation_d 0 --in_d 0 --fil_d 99 --pad_d 7") == plain


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("", "missing"),
        ("pool -n 1", "'pool'"),
        ("conv -n", "--batchsize (-n) has no value"),
        ("conv --what 1", "'--what'"),
        ("conv n 1", "'n'"),
        ("conv -n 1 2", "'2'"),
        ("conv -n1 2", "'-n1'"),
        ("conv -n 1.5", "'1.5' is not an integer"),
        ("conv -n -c 3", "'-c'"),
        ("conv -n ''", "'' is not an integer"),
        ("conv -n 0", "--batchsize (-n) 0 is not from 1"),
        ("conv -c -3", "--in_channels (-c) -3"),
        ("conv -H 2147483648", "2147483648 is not from 1 to 2^31-1"),
        ("conv -H " + "9" * 5000, "is not from 1"),
        ("conv -u 0", "--conv_stride_h (-u) 0"),
        ("conv -p -1", "--pad_h (-p) -1"),
        ("conv -_ 4", "--spatial_dim (-_) 4"),
        ("conv -_ 3 --conv_stride_d 0", "--conv_stride_d (-#) 0"),
        ("conv --conv_stride_d x", "'x' is not an integer"),
        ("conv -c 3 -g 2", "--group_count (-g) 2 does not divide --in_channels (-c) 3"),
        ("conv -c 4 -k 3 -g 2", "--group_count (-g) 2 does not divide --out_channels (-k) 3"),
        ("conv -y 40", "output of -7"),
        ("conv -m trans -c 6 -H 4 -W 4 -k 8 -y 1 -x 1 -p 2 -q 2", "output of 0, below 1"),
        ("conv -m deconv", "'deconv'"),
        ("conv -z full", "'full'"),
        ("conv -Y 1", "--mode trans"),
        ("conv -m trans -u 2 -v 2 -Y 2", "smaller than the stride 2"),
        ("conv -I NCWH3", "--in_layout (-I)"),
        ("conv -I NCDHW -_ 2", "3 spatial axes"),
        ("conv -I NHWC -f NDHWC", "3 spatial axes"),
        ("conv -Z 1", "0 and 1, 1 and 4, or 1 and 8"),
        ("conv -L 4", "0 and 1, 1 and 4, or 1 and 8"),
        ("conv -Z 1 -L 4 -c 6 -k 8", "6 channels do not divide by the vector width 4"),
        ("conv -Z 1 -L 4 -c 8 -k 6", "6 channels do not divide by the vector width 4"),
        ("conv -U fp12", "--in_cast_type (-U) 'fp12'"),
        ("conv -r 1", "--pad_val (-r) 1"),
        ("conv -i 0", "--iter (-i) 0"),
        ("conv -F 16", "--forw (-F) 16"),
        ("conv -n '1", "quotation"),
        ("convint8 -F 4", "mode wrw"),
        ("conv --epilogue mish", "'mish'"),
        ("conv --acc_type int8", "accumulated in int8"),
        ("convbfp16 --acc_type tf32", "goes with fp32 tensors"),
        ("conv -U tf32", "--in_cast_type (-U) 'tf32'"),
        ("conv --in_strides 1x", "--in_strides"),
        ("conv --in_strides 1x1x1x1", "overlap"),
        ("gemm -m 0", "--a_h (-m) 0"),
        ("gemm -A x", "--alpha (-A) 'x' is not a number"),
        ("gemm -A nan", "'nan' is not finite"),
        ("gemm --lda 3 -k 4", "lda 3"),
        ("gemm -C 1 --ldc 300", "--isColMajor 0"),
        ("gemm -F 2", "--forw (-F) 2"),
        ("gemm --in_layout NHWC", "'--in_layout'"),
    ],
)
def test_bad_commands(text, needs):
    with pytest.raises(CommandError) as caught:
        parse_command(text)
    assert needs in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files(tmp_path):
    path = tmp_path / "commands.txt"
    path.write_bytes(
        b"\xef\xbb\xbf# a list\n\nconv -n 1 -F 1  # one\r\nconv -n 0\n\tgemm -m 4\t# don't\nconv \xff\nconvfp16 -F 2\n"
    )
    lines = list(read_commands(path))
    assert [line.number for line in lines] == [3, 4, 5, 6, 7]
    assert [line.error is None for line in lines] == [True, False, True, False, True]
    assert f"{path}:4: " in str(lines[1].error)
    assert lines[4].command.signatures[0][0] == "bwd"
    with pytest.raises(FileFormatError, match="nothing.txt"):
        read_commands(tmp_path / "nothing.txt")
    with pytest.raises(FileFormatError):
        read_commands(tmp_path)


def test_every_flag_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "reference" / "driver.md").read_text()
    conv, gemm = text.split("## GEMM")
    for page, flags in ((conv, CONV_FLAGS), (gemm, GEMM_FLAGS)):
        rows = [line for line in page.splitlines() if line.startswith("| `--")]
        assert [row.split("|")[1].strip().strip("`") for row in rows] == [f"--{flag.long}" for flag in flags]
        for row, flag in zip(rows, flags, strict=True):
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            assert cells[1] == (f"`-{flag.short}`" if flag.short else "own")
            assert cells[2] == (f"`{flag.default}`" if flag.default != "" else "")
            assert cells[3] == flag.meaning
            assert flag.own == (not flag.short)


FUSED = (
    "conv2;fwd;x=fp32,NHWC,2x8x8x8;w=fp32,NHWC,12x3x3x8;y=fp32,NHWC;stride=2x1;pad=0x1;dil=1x1;groups=1;acc=fp32;"
    "epi=bias+residual+relu;padhi=1x1"
)


def test_lists_hold_keys_beside_commands(tmp_path):
    path = tmp_path / "list.txt"
    gemm = GemmSignature(4, 5, 6, epilogue=Epilogue(bias=True))
    path.write_text(f"# a list\n  {FUSED}  # 3 calls\nconv -n 1 -F 5\n{gemm.key()}\n")
    found = [signature for line in read_commands(path) for _, signature in line.command.signatures]
    assert found == [parse_key(FUSED), first("conv -n 1 -F 1"), parse_command("conv -n 1 -F 4").signatures[0][1], gemm]
    assert [direction for line in read_commands(path) for direction, _ in line.command.signatures] == [
        "fwd", "fwd", "wrw", "fwd",
    ]  # fmt: skip
    with pytest.raises(CommandError, match="pad both sides alike"):
        command_of(parse_key(FUSED))
    assert command_or_key(parse_key(FUSED)) == FUSED


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (FUSED.replace("conv2", "conv9"), "they begin with conv1;"),
        (FUSED.replace("stride=2x1;", ""), "is no conv2 key"),
        (FUSED.replace("relu", "tanhh"), "'tanhh'"),
        (FUSED.replace(";padhi=1x1", ""), "is no conv2 key: it reads as 'conv1;"),
        (f"{FUSED} conv -n 1", "is no conv2 key"),
        ("gemm1;m=4", "is no gemm1 key"),
    ],
)
def test_a_bad_key_names_its_line_and_rule(tmp_path, line, rule):
    path = tmp_path / "list.txt"
    path.write_text(f"conv\n\n{line}\ngemm\n")
    lines = list(read_commands(path))
    assert [each.number for each in lines if each.error is None] == [1, 4]
    message = str(lines[1].error)
    assert message.startswith(f"{path}:3: ")
    assert rule in message
