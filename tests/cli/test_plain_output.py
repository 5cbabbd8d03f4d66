"""All output at 80 columns, in a pipe, with NO_COLOR and in a dumb terminal: whole lines and no control characters.

Lines that programs read (sources, JSON lines, the driver's lines) are as wide as they are, and an error is one line.
"""

import shlex
import sys
import unicodedata
from pathlib import Path

import pytest

from tilesmith.cli.examples import EXAMPLES
from tilesmith.cli.main import VERBS, group, run
from tilesmith.problems.driver import parse_command
from tilesmith.ready.model_records import ModelResult, ModelRow

CONV = "conv -n 1 -c 8 -H 8 -W 8 -k 8 -y 3 -x 3 -p 1 -q 1 -F 1 --in_layout NHWC --out_layout NHWC --fil_layout NHWC"
GEMM = "gemm -m 8 -n 8 -k 8"
WIDE = ("generate", "trace", "completion", "conv")  # sources, lists, scripts and the driver's lines: for programs
STORE = Path(__file__).parents[1] / "db" / "stores" / "v2.db"
# By verb, so that none is forgotten; a verb that runs a script of PyTorch stands for its own failure here.
LINES = {
    "parse": ["parse list.txt"],
    "tune": [f"tune '{GEMM}' --strategy defaults --trials 1 --seconds 60 --against none"],
    "retune": ["retune --stale --list"],
    "preload": ["preload list.txt", "preload list.txt --long", f"preload '{GEMM}' --device '' --out sources"],
    "gemm": ["gemm jobs", "gemm perf"],
    "bench": ["bench list.txt --against none --seconds 0.05", "bench list.txt --against none --seconds 0.05 --long"],
    "verify": [f"verify '{GEMM}'"],
    "generate": [f"generate '{GEMM}'"],
    "explain": ["explain list.txt", "explain list.txt --all"],
    "db": [
        *(f"db {words} --db {STORE}" for words in ("query", "query --long", "query --trials", "stats", "check")),
        "db check",
    ],
    "package": [
        "package build list.txt -o packages",
        "package list packages/list.kdb",
        "package info packages/list.kdb",
        "package verify packages/list.kdb",
        "package installed",
        "package select none.toml list.txt",
    ],
    "embed": ["embed list.txt --target x86_64-v4 --name small --sources-only -o small"],
    "cache": ["cache ls", "cache verify", "cache prune --older-than 1 --dry-run"],
    "doctor": ["doctor"],
    "trace": ["trace missing.py"],
    "tune-model": ["tune-model missing.py"],
    "report": [f"report {STORE} -o report.html", f"report --compare {STORE} {STORE}"],
    "fleet": ["fleet plan list.txt --gpus 64"],
    "solvers": ["solvers", "solvers c_dense mma_dense_nhwc"],
    "env": ["env"],
    "help": ["help", "help db query", "help tune"],
    "completion": ["completion bash"],
    "conv": [f"{CONV} -t 1", "--commands-file list.txt --csv - -t 1"],
}


def told(text, wide=False):
    """Check the lines, and return them."""
    for line in text.splitlines():
        bad = [c for c in line if unicodedata.category(c) in ("Cc", "Cf")]
        assert not bad, line
        copied = "`" in line or any(len(word) >= 24 and "/" in word for word in line.split())  # stays on one line
        assert wide or copied or line.startswith("tilesmith: ") or len(line) <= 80, line
    return text.splitlines()


@pytest.fixture(autouse=True)
def narrow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, value in (("COLUMNS", "80"), ("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    (tmp_path / "list.txt").write_text(f"{CONV}\n{GEMM} --epilogue bias+leaky_relu(0.1)\n")
    monkeypatch.setattr("tilesmith.doctor.pytorch.facts", lambda: {"error": "ImportError: " + "a reason " * 20})


def test_every_verb_is_here():
    assert set(LINES) == {*VERBS, "conv"}


@pytest.mark.parametrize("verb", LINES)
def test_no_line_is_too_wide_and_none_has_a_control_character(verb, capsys, monkeypatch, tmp_path):
    for number, line in enumerate(LINES[verb]):
        if number == 1:  # a dumb terminal, then a pipe
            monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        kept = sorted(tmp_path.glob("packages/*.kdb"))
        words = [str(kept[0]) if word.endswith("/list.kdb") and kept else word for word in shlex.split(line)]
        assert run(words) in (0, 1, 2), line
        captured = capsys.readouterr()
        assert told(captured.out, verb in WIDE) or told(captured.err, verb in WIDE)
        told(captured.err, verb in WIDE)


def every_command():
    """The words of each verb and action, and its command."""
    for verb in VERBS:
        command = group.get_command(None, verb)
        yield [verb], command
        for name, action in getattr(command, "commands", {}).items():
            yield [verb, name], action


def test_every_help_fits_and_has_examples(capsys):
    for words, _ in every_command():
        assert run([*words, "--help"]) == 0
        lines = told(capsys.readouterr().out)
        at = lines.index("Examples:")
        examples = [line.strip() for line in lines[at + 1 :]]
        assert tuple(examples) == EXAMPLES[" ".join(words)], words


def test_control_characters_of_a_value_are_written_as_text(capsys):
    for words in (
        ["parse", "\x1b[31mred"],
        ["conv", "-n", "\x1b]0;title\x07"],
        ["tu\x1bne"],
        ["db", "query", "\x1b.txt"],
    ):
        assert run(words) == 2
        (line,) = told(capsys.readouterr().err)
        assert "\\x1b" in line


def test_the_table_of_a_model_fits():
    signature = parse_command(CONV).signatures[0][1]
    row = ModelRow(signature, 12, 123.4, 99.1, 45.6, "c_dense_nhwc", "tile_h=1", "converged", "")
    result = ModelResult("x86_64-v4:2:zen5", (row, row), (("aten::fft_" + "x" * 40, 3),), 12.0, "budget")
    assert len(told(str(result))) > 3
