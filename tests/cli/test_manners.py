"""Commands that explain themselves: what a misspelt name meant, help, completion, examples, solvers, CSV."""

import csv
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tilesmith.cli.completing import driver_completions
from tilesmith.cli.examples import EXAMPLES
from tilesmith.cli.main import VERBS, group, run
from tilesmith.cli.problem_list import read_problems
from tilesmith.problems.driver import parse_command
from tilesmith.problems.short_name import short_name
from tilesmith.solvers.table_cpu import CPU_SOLVERS
from tilesmith.solvers.table_cuda import CUDA_SOLVERS
from tilesmith.spelling import nearest_name

GEMM = "gemm -m 8 -n 8 -k 8"
CONV = "conv -n 1 -c 8 -H 8 -W 8 -k 8 -p 1 -q 1 -F 1 -I NHWC -f NHWC -O NHWC"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("tun x", "tune"),
        ("covn -n 1", "conv"),
        ("help bnch", "bench"),
        ("db qury", "query"),
        ("gemm perv", "perf"),
        ("convfp61 -n 1", "convfp64"),
        ("conv --in_layuot NHWC", "--in_layout"),
        (f"bench {GEMM} --theads 2", "--threads"),
        ("bench list.txt --thread 2", "--threads"),
        ("db stats --jsn", "--json"),
        ("bench lits.txt", "list.txt"),
        (f"tune '{GEMM}' --strategy modle", "model"),
        (f"bench '{GEMM}' --against onednnn", "onednn"),
        (f"generate '{GEMM}' --solver c_dens", "c_dense"),
        (f"generate '{GEMM}' --solver c_dense --config tile_hh=2", "tile_h"),
        (f"generate '{GEMM}' --target sm_90:132", "sm_90a"),
        ("conv -S c_dens -n 1 -F 1", "c_dense"),
        ("solvers mma_dens", "mma_dense"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_one(line, meant, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text(f"{GEMM}\n")
    assert run(shlex.split(line)) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert meant in error.lower().partition("did you mean")[2].partition("?")[0]


def test_a_name_unlike_all_others_gets_none(capsys):
    assert run(["zzz"]) == 2
    assert "did you mean" not in capsys.readouterr().err
    assert nearest_name("x" * 100_000, ["x" * 99_999]) == ""


@pytest.mark.parametrize("name", ["bnorm", "poolfp16", "MIOpenDriver softmax", "layernormbfp16", "reduce"])
def test_other_commands_of_the_driver(name, capsys):
    assert run([*name.split(), "-n", "1"]) == 2
    assert "only conv and gemm exist here" in capsys.readouterr().err


def leaf(words):
    """Parse words as the command line does, as far as the command that would run: its context."""
    context = group.make_context("tilesmith", list(words))
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, list(rest), parent=context)
    return context


@pytest.mark.parametrize("path", EXAMPLES)
def test_examples_are_commands(path, tmp_path, monkeypatch):
    """Each is parsed by its verb, with the problem that it names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "problems.txt").write_text(f"{GEMM}\n")
    for line in EXAMPLES[path]:
        assert len(line) <= 74
        command = line.removeprefix('eval "$(').removesuffix(')"').removesuffix(" | source")
        program, *words = shlex.split(command)
        assert program == "tilesmith"
        assert path == "" or words[: len(path.split())] == path.split()
        if words[0] not in VERBS:
            assert parse_command(shlex.join(words)).signatures
            continue
        context = leaf(words)
        if isinstance(given := context.params.get("words"), tuple) and words[0] not in ("gemm", "help") and given:
            with context:
                assert read_problems(given).items, line


def test_the_list_of_verbs_loads_no_problems():
    code = (
        "import sys; from tilesmith.cli.main import run; run(['--help']); "
        "assert not [name for name in sys.modules if name.startswith(('numpy', 'tilesmith.problems'))]"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)


def test_help_of_a_verb_is_that_of_its_option(capsys):
    for words in (["tune"], ["db", "query"]):
        assert run([*words, "--help"]) == 0
        shown = capsys.readouterr().out
        assert run(["help", *words]) == 0
        assert capsys.readouterr().out == shown
    assert "FILE     a list: a driver command or a key on each line" in shown.replace("[FILE|COMMAND|KEY]", "")
    assert run(["help", "tune", "more"]) == 2
    assert "has no action 'more'" in capsys.readouterr().err


def offered(line, monkeypatch, capsys):
    """What fish gets for an unfinished line."""
    words = line.split(" ")
    monkeypatch.setenv("_TILESMITH_COMPLETE", "fish_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(words[:-1]))
    monkeypatch.setenv("COMP_CWORD", words[-1])
    assert run([]) == 0
    return [row.partition(",")[2].split("\t")[0] for row in capsys.readouterr().out.splitlines()]


def test_completion_offers_what_may_follow(monkeypatch, capsys):
    assert {"tune", "tune-model"} <= set(offered("tilesmith tun", monkeypatch, capsys))
    assert "convbfp16" in offered("tilesmith conv", monkeypatch, capsys)
    assert offered("tilesmith db qu", monkeypatch, capsys) == ["query"]
    assert offered("tilesmith tune --str", monkeypatch, capsys) == ["--strategy"]
    assert "model" in offered("tilesmith tune --strategy mo", monkeypatch, capsys)
    assert "c_dense" in offered("tilesmith solvers c_de", monkeypatch, capsys)
    assert "--in_layout" in offered("tilesmith conv -n 1 --in_", monkeypatch, capsys)
    assert "--out_channels" in offered("tilesmith bench conv -n 1 --out_", monkeypatch, capsys)
    assert [item.type for item in driver_completions((), "prob")] == ["file"]


def test_bash_completes_with_the_script(tmp_path):
    """With a command ``tilesmith`` on the PATH, as a user has it."""
    command = tmp_path / "tilesmith"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tilesmith "$@"\n')
    command.chmod(0o755)
    script = (
        f'PATH={tmp_path}:$PATH; eval "$(tilesmith completion bash)"; complete -p tilesmith >&2; '
        'COMP_WORDS=(tilesmith tune --until); COMP_CWORD=2; _tilesmith_completion tilesmith; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert "_tilesmith_completion" in done.stderr
    assert done.stdout.split() == ["--until-no-gain"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_other_shells(shell, capsys):
    assert run(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert f"_TILESMITH_COMPLETE={shell}_complete" in out


def test_solvers(capsys):
    assert run(["solvers", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["solver"] for row in rows] == [each.name for each in (*CPU_SOLVERS, *CUDA_SOLVERS)]
    assert all(row["about"] and row["operations"] for row in rows)
    assert run(["solvers", "--device", "cpu", "--csv"]) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(table) == len(CPU_SOLVERS)
    assert json.loads(table[0]["axes"])[0]["name"] == CPU_SOLVERS[0].axes[0].name


def test_explain_folds_what_does_not_fit(capsys):
    assert run(["explain", CONV]) == 0
    captured = capsys.readouterr()
    assert "c_wrw" not in captured.out
    assert "15 more do not fit" in captured.err
    assert run(["explain", CONV, "--all"]) == 0
    out = capsys.readouterr().out
    assert "c_wrw" in out
    assert "group width not covered" in out


def test_rows_as_csv(tmp_path, capsys):
    assert run(["bench", GEMM, "--against", "none", "--seconds", "0.05", "--csv", str(tmp_path / "rows.csv")]) == 0
    (row,) = csv.DictReader((tmp_path / "rows.csv").open())
    assert (row["command"], row["status"]) == (GEMM, "ok")
    assert float(row["time_us"]) > 0
    store = Path(__file__).parents[1] / "db" / "stores" / "v2.db"
    capsys.readouterr()
    assert run(["db", "query", "--db", str(store), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert run(["db", "query", "--db", str(store), "--csv"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["problem"] for line in lines] == [row["problem"] for row in rows]
    assert list(lines[0]) == list(rows[0])
    assert run(["bench", GEMM, "--csv", "-", "--json", "-"]) == 2


def test_short_names():
    spelt = {}
    for text, name in (
        (CONV, "fwd 1x8x8x8 k8 3x3 p1 NHWC fp32"),
        (
            "convbfp16 -n 2 -c 8 -H 8 -W 6 -k 4 -y 3 -x 1 -u 2 -v 2 -p 1 -q 0 -g 2 -F 4",
            "wrw 2x8x8x6 k4 3x1 s2 p1x0 g2 bf16",
        ),
        ("conv -m trans -n 1 -c 4 -H 5 -W 5 -k 6 -u 2 -v 2 -Y 1 -X 1 -F 1", "fwd trans 1x4x5x5 k6 3x3 s2 o1 fp32"),
        ("gemmfp16 -m 4 -n 5 -k 6 --transB 1 -b 3 --epilogue bias+relu", "gemm 4x5x6 nt b3 fp16 +bias+relu"),
        ("conv -n 1 -c 4 -H 5 -W 5 -k 6 --out_layout NHWC -F 2", "bwd 1x4x5x5 k6 3x3 NCHW/NCHW/NHWC fp32"),
    ):
        spelt[name] = short_name(parse_command(text).signatures[0][1])
    assert spelt == {name: name for name in spelt}
