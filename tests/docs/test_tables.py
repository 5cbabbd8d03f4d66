"""The tables of the documentation are those of the code."""

import json
import re
from dataclasses import fields
from importlib import import_module

import pytest
from pages import DOCS, ROOT, names, page_of_verb, section, table

import tilesmith.errors
from tilesmith import env
from tilesmith.cli.main import VERBS, WITHOUT_DATA, run
from tilesmith.cli.verbs.bench import DISTURBED_STATUS
from tilesmith.db.records import Record, Search
from tilesmith.dispatch.launchable import get_launchable
from tilesmith.dispatch.locations import open_databases
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.driver import parse_command
from tilesmith.problems.epilogue import ACTIVATIONS
from tilesmith.solvers.table_cpu import CPU_SOLVERS
from tilesmith.solvers.table_cuda import CUDA_SOLVERS
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.cache import _entry
from tilesmith.tune.session import STRATEGIES

COMMAND_LINE = DOCS / "guide" / "command-line.md"
SMALL_KEY = "gemm1;m=8;n=8;k=8;batch=1;a=fp32,n;b=fp32,n;c=fp32;acc=fp32;alpha=1.0;beta=0.0"
PROBLEM = "conv -n 1 -c 8 -H 6 -W 6 -k 8 -p 1 -q 1 -F 1 -I NHWC -f NHWC -O NHWC"


def first_column(rows):
    return [name for row in rows for name in names(row[0])]


def test_every_page_of_the_navigation_exists_and_no_other():
    named = set(re.findall(r":\s+(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert named == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}


def test_variables():
    rows = table((DOCS / "reference" / "environment.md").read_text(), "variable")
    assert [[names(row[0])[0], *row[1:]] for row in rows] == [
        [variable.name, variable.default_text, variable.rule, variable.meaning] for variable in env.VARIABLES
    ]


def test_verbs():
    rows = table(COMMAND_LINE.read_text().split("\n## ")[0], "verb")
    assert [(names(verb)[0], text) for verb, text in rows] == list(VERBS.items())


@pytest.mark.parametrize("verb", VERBS)
def test_options(verb):
    command = import_module(f"tilesmith.cli.verbs.{verb.replace('-', '_')}").command
    commands = [command, *getattr(command, "commands", {}).values()]
    parameters = [parameter for each in commands for parameter in each.params]
    options = {option for parameter in parameters for option in parameter.opts if option.startswith("--")}
    documented = first_column(table(section(page_of_verb(verb), verb), "option")) if options else []
    assert sorted(documented) == sorted(options)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """One cache: the verbs compile the same few kernels."""
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.parametrize("verb", [*(verb for verb in VERBS if verb not in WITHOUT_DATA), "Driver commands"])
def test_json_fields(verb, capsys, tmp_path, monkeypatch, kernels):
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(kernels))
    words = {
        "env": ["env", "--json"],
        "solvers": ["solvers", "--json"],
        "doctor": ["doctor", "--json"],
        "tune-model": ["tune-model", "--seconds", "5", "--threads", "1", "--json", str(tmp_path / "script.py")],
        "trace": ["trace", "--json", str(tmp_path / "script.py")],
        "cache": ["cache", "ls", "--json"],
        "fleet": ["fleet", "plan", *PROBLEM.split(), "--gpus", "2", "--json"],
        "package": ["package", "build", str(tmp_path / "list.txt"), "-o", str(tmp_path), "--json"],
        "embed": [
            *["embed", str(tmp_path / "list.txt"), "--target", "x86_64-v4", "--name", "small", "--sources-only"],
            *["-o", str(tmp_path / "small"), "--json"],
        ],
        "db": ["db", "query", "--db", str(ROOT / "tests" / "db" / "stores" / "v2.db"), "--json"],
        "report": ["report", str(ROOT / "tests" / "db" / "stores" / "v2.db"), "-o", str(tmp_path / "r.html"), "--json"],
        "gemm": ["gemm", "tune", "MNK=8", "t=1", "s=60", "--threads", "1", "--json"],
        "tune": ["tune", *PROBLEM.split(), "--trials", "1", "--seconds", "60", "--json"],
        "bench": [
            "bench",
            *PROBLEM.split(),
            "--seconds",
            "0.05",
            "--against",
            "none",
            "--json",
            str(tmp_path / "out.json"),
        ],
        "Driver commands": [*PROBLEM.split(), "--json"],
    }.get(verb, [verb, *PROBLEM.split(), "--json"])
    (tmp_path / "script.py").write_text("import torch\ntorch.ones(2, 2) @ torch.ones(2, 2)\n")
    (tmp_path / "list.txt").write_text(f"{PROBLEM}\n")
    if verb == "cache":
        get_launchable(parse_command(PROBLEM).signatures[0][1])
    if verb == "retune":
        words = ["retune", "--stale", "--list", "--threads", "1", "--json"]
        stale = Record(SMALL_KEY, host_target(1).name, "c_reference", "", time_us=1.0, compiler="another")
        open_databases().writable.put_result(stale)
    assert run(words) == 0
    out = capsys.readouterr().out
    row = json.loads((tmp_path / "out.json").read_text())["results"][0] if verb == "bench" else None
    row = row or json.loads(out.splitlines()[0])
    documented = first_column(table(section(page_of_verb(verb), verb), "field"))
    documented += [field.name for field in fields(Record)] if verb == "db" else []
    assert sorted(documented) == sorted(row)


def test_exit_statuses():
    rows = table(COMMAND_LINE.read_text().split("\n## ")[0], "exit status")
    errors = [cls for cls in vars(tilesmith.errors).values() if isinstance(cls, type)]
    statuses = {cls.exit_status for cls in errors if issubclass(cls, tilesmith.errors.TilesmithError)}
    assert {int(row[0]) for row in rows} == statuses | {0, DISTURBED_STATUS}


def test_columns_of_the_database():
    text = section(DOCS / "reference" / "formats.md", "The database")
    results, searches = text.split("A row of `searches`")
    assert first_column(table(results, "column")) == [field.name for field in fields(Record)]
    assert first_column(table(searches, "column")) == [field.name for field in fields(Search)]


def test_strategies_and_modes():
    tuning = DOCS / "guide" / "tuning.md"
    assert first_column(table(section(tuning, "Strategies"), "strategy")) == list(STRATEGIES)
    assert first_column(table(section(tuning, "Modes"), "mode")) == list(env.FIND_MODES)


def test_fields_of_signatures():
    problems = DOCS / "guide" / "problems.md"
    documented = first_column(table(section(problems, "A convolution"), "field"))
    assert sorted(documented) == sorted(field.name for field in fields(ConvSignature))
    assert first_column(table(section(problems, "Epilogues"), "activation")) == list(ACTIVATIONS)


def test_solvers():
    text = (DOCS / "reference" / "solvers.md").read_text()
    for header, solvers in (("solver", CPU_SOLVERS), ("solver of GPUs", CUDA_SOLVERS)):
        assert first_column(table(text, header)) == [solver.name for solver in solvers]


def test_fields_of_key_files():
    rows = table(section(DOCS / "reference" / "formats.md", "The cache folder"), "field")
    entry = json.loads(_entry("key", "digest", "symbol", "compiler", ()).splitlines()[0])
    assert sorted(names(row[0])[0] for row in rows) == sorted(entry)
    assert names(rows[0][1]) == [entry["format"]]


def test_errors():
    """Each class that is raised somewhere is documented, and no other."""
    documented = first_column(table(section(DOCS / "guide" / "python.md", "Errors"), "error"))
    files = [path for path in (ROOT / "src" / "tilesmith").rglob("*") if path.suffix in (".py", ".c", ".h")]
    sources = [path.read_text() for path in files if path.name != "errors.py"]
    known = [name for name in vars(tilesmith.errors) if name.endswith("Error") and name != "TilesmithError"]
    used = [name for name in known if any(re.search(rf"(?<!sqlite3\.)\b{name}\b", text) for text in sources)]
    assert documented == used


def test_no_table_is_wider_than_a_screen():
    """Eight columns fit 1280 pixels with ``docs/tables.css``."""
    for page in DOCS.rglob("*.md"):
        rows = [line for line in page.read_text().splitlines() if line.startswith("|---")]
        assert all(row.count("|") - 1 <= 8 for row in rows), page


def test_the_page_of_axes_is_that_of_the_solvers():
    import axes

    assert axes.PAGE.read_text() == axes.page(), "type `python tests/docs/axes.py`"
