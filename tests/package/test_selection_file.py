"""Selection files: what they may say, and the one error of what they may not."""

from __future__ import annotations

import itertools

import pytest

from tilesmith.cli.main import run
from tilesmith.errors import CommandError, FileFormatError
from tilesmith.package.selection.ranges import MOST_COMMANDS, expand_command
from tilesmith.package.selection.reading import read_selection
from tilesmith.package.selection.terms import mode_of, parse_arch_stages, parse_size, parse_tile, parse_trait
from tilesmith.problems.driver import parse_problem

NHWC = "-I NHWC -f NHWC -O NHWC"


@pytest.fixture
def selected(tmp_path):
    """The selection of a text."""

    def read(text):
        path = tmp_path / "some.toml"
        path.write_text(text)
        return read_selection(path)

    return read


def sizes(commands):
    """Batch, channels, height and width of convolutions, read by the parser of plain commands."""
    found = [parse_problem(command).signatures[0][1].input_logical for command in commands]
    assert len(set(found)) == len(found)
    return found


def test_ranges_are_every_combination():
    found = sizes(expand_command("conv -n 1..3 -c 8 -H 7..15+4 -W 4,6,16..64*2 -k 8 -F 1"))
    assert found == [(n, 8, h, w) for n in (1, 2, 3) for h in (7, 11, 15) for w in (4, 6, 16, 32, 64)]


def test_a_flag_follows_another():
    found = sizes(expand_command("conv -n 2 -c 4,8 -k =c -H 7..9 -W =H -F 1"))
    assert found == [(2, c, h, h) for c, h in itertools.product((4, 8), (7, 8, 9))]
    (same,) = expand_command("conv -n 1 -c 16 -k =in_channels -H 5 -W 5 -F 1")
    assert parse_problem(same).signatures[0][1].kernel_logical[:2] == (16, 16)


def test_what_has_no_range_is_left_as_it_is():
    command = f"convfp16 -n 1 -c 8 -H 5 -W 5 -k 8 -F 1 {NHWC} --in_strides 200x40x8x1  # 1..2"
    assert expand_command(command) == (command,)
    key = "gemm1;m=4;n=5;k=6;batch=1;a=fp32,n;b=fp32,t;c=fp32;acc=fp32;alpha=1.0;beta=0.0"
    assert expand_command(key) == (key,)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("conv -n 1..x -F 1", "'1..x' is no range"), ("conv -n 9..1 -F 1", "9 is more than 1"),
        ("conv -n 1..8+0 -F 1", "never ends"), ("conv -n 0..8*2 -F 1", "never ends"),
        ("conv -n 1..8*1 -F 1", "never ends"), ("conv -H =Q -F 1", "names no flag"),
        ("conv -H =W -W =H", "names no flag"),
        ("conv -n 1..2147483647 -F 1", "2147483647 values"),
        (f"conv -n 1..{MOST_COMMANDS} -H 7,8 -F 1", f"{2 * MOST_COMMANDS} combinations"),
        ("conv -n 1..2..3 -F 1", "is no range"), ("conv -m 1..3", "mode"),
    ],
)  # fmt: skip
def test_ranges_that_cannot_be(command, says):
    with pytest.raises(CommandError, match=says):
        [parse_problem(each) for each in expand_command(command)]


def test_a_file_says_all_of_it(selected, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "layers.txt").write_text(f"# two\nconvfp16 -n 1,2 -c 8 -H 5 -W 5 -k 8 -F 1 {NHWC}\n\n")
    found = selected(
        'lists = ["sub/layers.txt"]\n'
        f'problems = ["convbfp16 -n 1 -c 8 -H 5 -W 5 -k 8 -F 3 {NHWC}",\n'
        '  "gemm1;m=4;n=5;k=6;batch=1;a=fp32,n;b=fp32,t;c=fp32;acc=fp32;alpha=1.0;beta=0.0"]\n'
        'traits = ["fp16", "bf16/bf16/*/fp32"]\nmodes = ["fwd", "bwd"]\ntiles = ["128x64", "64x*x32"]\n'
        'arch_stages = ["sm80_3", "sm_90a_4"]\nsolvers = ["wgmma_*", "c_dense"]\nsize = "1.5 MiB"\nreference = false\n'
    )
    assert [mode_of(each) for each in found.signatures] == ["fwd", "fwd", "fwd", "bwd", "gemm"]
    assert found.problems() == found.signatures[:4]
    assert [str(each) for each in found.traits] == ["fp16", "bf16/bf16/*/fp32"]
    assert [str(each) for each in found.tiles] == ["128x64", "64x*x32"]
    assert [str(each) for each in found.arch_stages] == ["sm80_3", "sm90_4"]
    assert (found.solvers, found.size, found.reference) == (("wgmma_*", "c_dense"), 3 << 19, False)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("\nx = 1\n", 2, "'x' does not exist in a selection; known: lists, problems"),
        ('modes = [\n"fwd",\n"deconvs"]', 3, "mode 'deconvs' does not exist; known: fwd, bwd, wrw"),
        ('traits = ["fp17"]', 1, "'fp17' does not exist"), ('traits = ["a/b/c/d/e"]', 1, "5 types"),
        ('tiles = ["128"]', 1, "tile '128' is not block_m x block_n"), ("tiles = [128]", 1, "array of texts"),
        ('tiles = "128x128"', 1, "array of texts"), ('\n\ntiles = ["0x64"]', 3, "'0x64'"),
        ('arch_stages = ["sm75_2"]', 1, "kernels are made for sm80"), ('arch_stages = ["80_3"]', 1, "such as sm80_3"),
        ('solvers = ["c_dense",\n "wgma_*"]', 2, "solver 'wgma_.' does not exist; known: c_depthwise"),
        ("size = 0", 1, "size '0' is not"), ('size = "4 TB"', 1, "size '4 TB' is not"), ("size = true", 1, "got True"),
        ("size = -4", 1, "size '-4' is not"), ("size = 1.5", 1, "got 1.5"),
        ("reference = 1", 1, "true or false, got 1"),
        ("modes = []", 1, "modes is empty"), ('lists = ["no.txt"]', 1, "no.txt' is no file"),
        ('problems = ["conv -n 1..3 -H 1 -y 5 -F 1"]', 1, "conv"), ('problems = [\n  "cov -n 1"]', 2, "'cov' does not"),
        ("a = [", 1, "this is no TOML"),
    ],
)  # fmt: skip
def test_what_a_file_may_not_say(selected, tmp_path, text, line, says):
    with pytest.raises(FileFormatError, match=says) as caught:
        selected(text)
    assert str(caught.value).startswith(f"{tmp_path / 'some.toml'}:{line}: ")


def test_a_bad_line_of_a_list_is_named(selected, tmp_path):
    (tmp_path / "layers.txt").write_text("gemm -m 4\nconv -n 1..x\n")
    with pytest.raises(FileFormatError, match=r"layers\.txt:2: conv: .*is no range"):
        selected('lists = ["layers.txt"]')


def test_problems_of_all_lines_are_counted(selected):
    with pytest.raises(FileFormatError, match=f":3: .*more than {MOST_COMMANDS} problems"):
        selected(f'problems = ["conv -n 1..2 -F 1",\n"gemm -m 1..8",\n"conv -n 1..{MOST_COMMANDS} -F 1"]')


@pytest.mark.parametrize(
    ("parse", "text", "printed"),
    [
        (parse_trait, "fp16", "fp16"), (parse_trait, "half", "fp16"), (parse_trait, "bf8/fp8", "fp8e5m2/fp8e4m3"),
        (parse_trait, "int8/int8/int32", "int8/int8/int32"), (parse_trait, "fp32/fp32/*/tf32", "fp32/fp32/*/tf32"),
        (parse_tile, "128x128", "128x128"), (parse_tile, "128x64x32", "128x64x32"), (parse_tile, "*x64", "*x64"),
        (parse_arch_stages, "sm80_3", "sm80_3"), (parse_arch_stages, "sm_100a_4", "sm100_4"),
    ],
)  # fmt: skip
def test_terms_print_as_they_parse(parse, text, printed):
    assert str(parse(text)) == printed
    assert parse(printed) == parse(text)


def test_sizes():
    found = [parse_size(text) for text in ("7", "4 KB", "4KiB", "0.5 MB", "1.25GB")]
    assert found == [7, 4000, 4096, 500_000, 1_250_000_000]


def test_a_selection_of_nothing_is_an_error(tmp_path, capsys):
    (tmp_path / "none.toml").write_text('problems = ["gemm -m 4"]\nmodes = ["fwd"]\n')
    assert run(["package", "select", str(tmp_path / "none.toml"), "--target", "x86_64-v3"]) == 2
    assert "mode gemm is not selected (fwd)" in capsys.readouterr().err
    (tmp_path / "empty.toml").write_text('modes = ["fwd"]\n')
    assert run(["package", "select", str(tmp_path / "empty.toml"), "--target", "x86_64-v3"]) == 2
    assert "names no problem" in capsys.readouterr().err
