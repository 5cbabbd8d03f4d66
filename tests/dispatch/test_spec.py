"""The tuning spec: choices of a file before those of every database."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesmith import ConvSignature, GemmSignature, get_launchable
from tilesmith.dispatch.facts import options_of
from tilesmith.dispatch.launchable import forget_launchables
from tilesmith.dispatch.measuring import check_launchable
from tilesmith.dispatch.spec.choice import read_spec, spec_choice
from tilesmith.dispatch.spec.pattern import parse_pattern
from tilesmith.errors import FileFormatError, ProblemError
from tilesmith.problems.driver import command_of
from tilesmith.targets.cpu import cpu_target

sys.path.append(str(Path(__file__).parents[1] / "problems"))
from problem_strategies import conv_signatures, gemm_signatures

SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
OTHER = ConvSignature((1, 8, 8, 8), (8, 3, 3, 8), shared_layout="NHWC")


@pytest.fixture
def spec(tmp_path, monkeypatch):
    path = tmp_path / "spec.toml"
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", str(path))

    def write(*choices):
        text = "# choices\n"
        for choice in choices:
            text += "\n[[choice]]\n" + "".join(f"{name} = {value!r}\n" for name, value in choice.items())
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("mode", ["fast", "hybrid", "strict"])
def test_a_choice_decides(spec, mode):
    path = spec({"problem": SMALL.key(), "solver": "c_reference"})
    get_launchable(SMALL, mode="fast")  # strict compiles nothing
    launch = get_launchable(SMALL, mode=mode)
    assert (launch.solver, launch.choice.basis, launch.choice.layer) == ("c_reference", "tuning spec", f"{path}:3")
    assert check_launchable(launch).ok


def test_it_wins_over_the_databases(spec):
    spec()
    assert get_launchable(SMALL, mode="hybrid").solver != "c_reference"
    spec({"problem": "-c 16", "solver": "c_reference"})
    assert get_launchable(SMALL, mode="normal").solver == "c_reference"


def test_config_target_and_last_choice(spec):
    free = get_launchable(SMALL, mode="fast", only="c_dense")
    spec(
        {"problem": SMALL.key(), "solver": "c_reference"},
        {"problem": SMALL.key(), "target": free.target.name, "solver": "c_dense", "config": free.config},
        {"problem": SMALL.key(), "target": "aarch64:1", "solver": "c_reference"},
        {"problem": SMALL.key(), "target": "sm_*", "solver": "c_reference"},
    )
    launch = get_launchable(SMALL, mode="fast")
    assert (launch.solver, launch.config) == ("c_dense", free.config)


def test_a_target_glob_and_a_part_of_a_config(spec):
    free = get_launchable(SMALL, mode="fast", only="c_dense")
    name, value = free.config.split()[0].split("=")
    arch = free.target.name.partition(":")[0]
    spec({"problem": "conv*", "target": f"{arch}:*", "solver": "c_dense", "config": f"{name}={value}"})
    assert get_launchable(SMALL, mode="fast").config == free.config


def test_other_problems_are_not_touched(spec):
    spec({"problem": OTHER.key(), "solver": "c_reference"})
    assert get_launchable(SMALL, mode="fast").choice.basis == "prediction"


def test_a_pattern_wider_than_its_solver_is_passed_over(spec):
    spec({"problem": "conv", "solver": "c_reference"}, {"problem": "conv", "solver": "c_depthwise"})
    assert get_launchable(SMALL, mode="fast").solver == "c_reference"
    forget_launchables()
    path = spec({"problem": SMALL.key(), "solver": "c_depthwise"})
    with pytest.raises(FileFormatError, match="c_depthwise cannot compute this problem") as caught:
        get_launchable(SMALL, mode="fast")
    assert str(caught.value).startswith(f"{path}:5: ")


UP = ConvSignature((2, 8, 4, 4), (8, 6, 3, 3), transposed=True, stride=2)
GEMM = GemmSignature(64, 32, 16, dtype="bf16", trans_b=True)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (SMALL.key(), SMALL, OTHER),
        ("conv1;fwd;x=fp32,NHWC,*", SMALL, GEMM),
        ("*;groups=1;*", SMALL, GEMM),
        ("conv", SMALL, GEMM),
        ("conv*", SMALL, GEMM),
        ("-c 16", SMALL, OTHER),
        ("-c 12..16 -n ..4", SMALL, OTHER),
        ("-c 16..", SMALL, OTHER),
        ("-c 4,16,32 -y 3", SMALL, OTHER),
        ("conv --in_layout nhwc -y 3", SMALL, UP),
        ("conv --in_layout N*C", SMALL, UP),
        ("conv -F 3", SMALL, ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), shared_layout="NHWC", mode="wrw")),
        ("conv -F 0 -k 16", SMALL, OTHER),
        ("conv -t 1 -V 0 -i 7 -c 16", SMALL, OTHER),
        ("conv -m trans", UP, SMALL),
        ("conv -F 2", UP, SMALL),  # what a transposed forward is
        ("gemmbfp16", GEMM, SMALL),
        ("gemm* --a_h 64 --transB 1", GEMM, SMALL),
        # A whole command in other words than ours.
        ("conv -n 1 -c 16 -H 8 -W 8 -k 16 -y 3 -x 3 -z same -F 1 -I NHWC -f NHWC -O NHWC", SMALL, OTHER),
        (command_of(SMALL), SMALL, OTHER),
    ],
)
def test_patterns(pattern, yes, no):
    read = parse_pattern(pattern)
    assert read.matches(yes)
    assert read.matches(yes.canonical) or "trans" in pattern  # which is a matter of spelling
    assert not read.matches(no)


@settings(max_examples=150, deadline=None)
@given(st.one_of(conv_signatures(), gemm_signatures()), st.one_of(conv_signatures(), gemm_signatures()))
def test_a_problem_is_one_of_its_own_patterns(one, other):
    same = one.canonical == other.canonical
    assert parse_pattern(one.canonical.key()).matches(one)
    assert parse_pattern(one.canonical.key()).matches(other) == same
    if isinstance(one, ConvSignature) and one.padding_low != one.padding_high:
        return  # no command has unequal padding
    for spelling in (command_of(one), command_of(one.canonical)):
        assert parse_pattern(spelling).matches(one)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("convfp17 -c 3", "'convfp17' does not exist"),
        ("conv --channels 3", "'--channels' is no flag of conv"),
        ("conv -c", "flag '-c' has no value"),
        ("conv -c few", "'few' is no integer"),
        ("conv -c 8..4", "empty range"),
        ("conv9;fwd;*", "no key"),
        ("conv1;fwd", "no conv1 key"),
        ("-m conv", "different things"),
        ("conv 'x", "No closing quotation"),
        (" ", "got nothing"),
    ],
)
def test_bad_patterns(pattern, said):
    with pytest.raises(ProblemError, match=said):
        parse_pattern(pattern)


@pytest.mark.parametrize(
    ("changes", "line", "said"),
    [
        ({"solver": None}, 5, "needs a solver"),
        ({"problem": None}, 5, "needs a problem"),
        ({"problem": "conv9;x"}, 6, "conv9;x"),
        ({"solver": "c_nonesuch"}, 7, "'c_nonesuch' does not exist; known: c_depthwise"),
        ({"target": "sparc:1"}, 8, "sparc"),
        ({"target": "sparc:*"}, 8, "fits no arch"),
        ({"config": "mh=x"}, 8, "mh=x"),
        ({"config": "tile_h=1 height=2"}, 8, "has no 'height'; known: tile_h, tile_w"),
        ({"config": "tile_h=77"}, 8, "tile_h=77 is outside the search space of c_dense; tile_h is one of 1, "),
        ({"confg": "mh=1"}, 8, "'confg' does not exist in a choice (did you mean 'config'?); known: problem, target"),
        ({"config": 7}, 8, "config is text in quotes, got 7"),
    ],
)
def test_bad_choices_are_refused_by_line(spec, changes, line, said):
    fields = {"problem": SMALL.key(), "solver": "c_dense"} | changes
    path = spec()
    lines = [f"{name} = {value!r}" for name, value in fields.items() if value is not None]
    path.write_text("[[choice]]\nproblem = 'gemm'\nsolver = 'c_dense'\n\n[[choice]]\n" + "\n".join(lines) + "\n")
    with pytest.raises(FileFormatError) as caught:
        get_launchable(SMALL, mode="fast")
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[[choice]]\nproblem = conv\nsolver = 'c_dense'\n", 2, "this is no TOML"),
        ("[[choice]]\nproblem = 'conv'\nsolver = 'c_dense\n", 3, "this is no TOML"),
        ("# old\nconv1;fwd;x * c_reference\n", 2, "this is no TOML"),
        ("threads = 4\n", 1, "'threads' does not exist"),
        ("\n[choice]\nproblem = 'conv'\n", 1, "array of tables"),
    ],
)
def test_what_is_no_spec(spec, text, line, said):
    path = spec()
    path.write_text(text)
    with pytest.raises(FileFormatError) as caught:
        get_launchable(SMALL, mode="fast")
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_bytes_that_are_no_text(spec):
    path = spec()
    path.write_bytes(b"# one\n# tw\xff\n")
    with pytest.raises(FileFormatError, match=":2: this is no UTF-8 text"):
        read_spec(path)


def test_other_ways_of_toml_read_as_well(spec):
    path = spec()
    path.write_text("choice = [\n {problem = 'conv', solver = 'c_reference'},\n]\n")
    assert get_launchable(SMALL, mode="fast").choice.layer == str(path)


def test_a_changed_file_is_read_anew(spec):
    spec({"problem": "conv", "solver": "c_reference"})
    assert get_launchable(SMALL, mode="fast", threads=1).solver == "c_reference"
    spec()
    assert get_launchable(OTHER, mode="fast").choice.basis == "prediction"


def test_only_comes_before_it(spec):
    spec({"problem": "conv", "solver": "c_reference"})
    assert get_launchable(SMALL, mode="fast", only="c_dense").solver == "c_dense"


def test_empty_is_none(monkeypatch):
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", "")
    assert get_launchable(SMALL, mode="fast").choice.basis == "prediction"


def test_a_missing_file_is_an_error(monkeypatch):
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", "/nonexistent/spec.toml")
    with pytest.raises(FileFormatError, match="/nonexistent/spec.toml: cannot be read"):
        get_launchable(SMALL, mode="fast")


def test_the_example_of_the_guide(monkeypatch, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "guide" / "tuning.md").read_text()
    (text,) = re.findall(r"^```toml[^\n]*\n(.*?)^```", page, re.M | re.S)
    path = tmp_path / "choices.toml"
    path.write_text(text)
    first, second = read_spec(path)
    assert first.fits(GemmSignature(64, 64, 64), cpu_target("x86_64-v2"))
    conv = ConvSignature((8, 14, 14, 64), (32, 3, 3, 64), padding=1, shared_layout="NHWC")
    assert second.pattern.matches(conv)
    assert not second.pattern.matches(replace(conv, input_shape=(9, 14, 14, 64)))
    monkeypatch.setenv("TILESMITH_TUNING_SPEC_PATH", str(path))
    for arch in ("x86_64-v4", "x86_64-v4-bf16"):
        target = cpu_target(arch)
        choice = spec_choice(conv, target, options_of(conv, target))
        assert (choice.solver, choice.layer) == ("c_dense", f"{path}:5")
        assert "vectors=2 " in choice.config
    other = cpu_target("x86_64-v3")
    assert spec_choice(conv, other, options_of(conv, other)) is None
