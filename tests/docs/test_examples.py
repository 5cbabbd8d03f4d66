"""The examples of the documentation run, and print what they say.

Python blocks of a page run one after the other; a ``print(...)  # text`` must print that text. Console blocks whose
output is the same on every machine are compared with what the commands print.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS, ROOT, page_of_verb, section

from tilesmith.cli.main import run

PAGES = (
    "index.md", "guide/problems.md", "guide/python.md", "guide/pytorch.md", "guide/models.md", "guide/compile.md",
    "guide/tuning.md", "guide/databases.md", "guide/deploying.md", "guide/packages.md", "adding-a-rival.md",
)  # fmt: skip
EXACT = ("parse", "solvers", "help", "Bad input")  # sections of the command line whose output no machine changes


def blocks(text, language):
    return re.findall(rf"^```{language}(?: [^\n]*)?\n(.*?)^```", text, re.M | re.S)


@pytest.mark.parametrize("page", [*PAGES, "../README.md"])
def test_python_blocks(page):
    names = {"__name__": "example"}
    found = blocks((DOCS / page).read_text(), "python")
    assert found
    for number, block in enumerate(found):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, f"{page}, block {number}", "exec"), names)
        assert out.getvalue().splitlines() == re.findall(r"^ *print\(.*\)  # (.*)$", block, re.M)


def test_no_page_is_left_out():
    with_python = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if blocks(page.read_text(), "python")}
    assert with_python == set(PAGES)


def test_console_blocks(tmp_path, capfd):
    page = DOCS / "guide" / "command-line.md"
    for name, content in re.findall(r'^```text title="([^"]+)"\n(.*?)^```', page.read_text(), re.M | re.S):
        (tmp_path / name).write_text(content)
    count = 0
    for heading in EXACT:
        for block in blocks(section(page, heading), "console"):
            for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
                if command == "echo $?":
                    assert str(status) == expected.strip()  # noqa: F821  # of the command before it
                    continue
                status = run(shlex.split(command)[1:])  # noqa: F841
                printed = capfd.readouterr()
                assert printed.err + printed.out == expected
                count += 1
    assert count >= 4


def test_problems_of_the_command_line_page_run(tmp_path, capsys):
    """The commands of its other sections, on its own file: they exist and succeed."""
    page = DOCS / "guide" / "command-line.md"
    for name, content in re.findall(r'^```text title="([^"]+)"\n(.*?)^```', page.read_text(), re.M | re.S):
        (tmp_path / name).write_text(content)
    commands = [
        command for heading in ("verify", "generate", "explain", "Driver commands")
        for command in re.findall(r"^\$ tilesmith (.*)$", section(page, heading), re.M)
    ]  # fmt: skip
    assert len(commands) == 5
    for command in commands:
        assert run(shlex.split(command)) == 0, command
    assert capsys.readouterr().out


@pytest.mark.needs_nvrtc
def test_package_commands_of_the_command_line_page(tmp_path, capfd):
    """The sizes depend on compilers; the counts do not."""
    page = DOCS / "guide" / "command-line.md"
    (name, content) = re.findall(r'^```text title="([^"]+)"\n(.*?)^```', page.read_text(), re.M | re.S)[0]
    (tmp_path / name).write_text(content)
    (block,) = blocks(section(page_of_verb("package"), "package"), "console")
    command, *expected = block.splitlines()
    assert run(shlex.split(command)[2:]) == 0
    printed = capfd.readouterr().out.splitlines()
    told, shown = (re.sub(r"[0-9]+ bytes", "bytes", " ".join(" ".join(lines).split())) for lines in (printed, expected))
    assert told == shown


@pytest.mark.needs_nvrtc
def test_commands_of_the_packages_page(tmp_path, monkeypatch):
    """Its console blocks as a shell runs them; the program that they start runs from the package."""
    text = (DOCS / "guide" / "packages.md").read_text()
    for name, content in re.findall(r'^```text title="([^"]+)"\n(.*?)^```', text, re.M | re.S):
        (tmp_path / name).write_text(content)
    (tmp_path / "serve.py").write_text(
        "import tilesmith\nlaunch = tilesmith.get_launchable(tilesmith.GemmSignature(m=16, n=16, k=16))\n"
        "assert launch.choice.basis == 'package', launch.choice\n"
    )
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    found = blocks(text, "console")
    for block in found:
        script = "set -e\n" + "\n".join(line.removeprefix("$ ") for line in block.splitlines())
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
    assert len(found) >= 2
    assert len(list((tmp_path / "packages").glob("*.kdb"))) >= 3


def test_files_and_targets_that_pages_name_exist():
    make = (ROOT / "Makefile").read_text()
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
        text = page.read_text()
        for target in re.findall(r"`make (\w+)`", text):
            assert re.search(rf"^{target}:", make, re.M), f"{page}: make {target}"
        for path in re.findall(r"`((?:src|benchmarks|tests)/[\w/.]+\w)/?`", text):
            assert (ROOT / path).exists(), f"{page}: {path}"
