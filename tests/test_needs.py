"""Tests are skipped for what is missing alone, and say how to get it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import needs

ROOT = Path(__file__).parents[1]
UNMET = """
import pytest
@pytest.mark.needs_zig
def test_with_zig(): pass
def test_without(): pass
"""
OTHERWISE = """
import pytest
def test_skipped(): pytest.skip("no mood")
"""


def test_markers_are_registered():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["markers"] == [f"{needs.PREFIX}{name}" for name in needs.NEEDS]
    assert {name for names in needs.FOLDERS.values() for name in names} <= needs.NEEDS.keys()
    assert all((needs.TESTS / folder).is_dir() for folder in needs.FOLDERS)


def test_files_that_import_pytorch_need_it():
    assert "torch" in needs.of_file(needs.TESTS / "problems" / "test_conv_signature.py")
    assert needs.of_file(needs.TESTS / "problems" / "test_driver.py") == ()


@pytest.mark.parametrize(
    ("text", "workers", "status", "told"),
    [
        (UNMET, 0, 0, "needs the ziglang wheel (400 MB): pip install ziglang"),
        (OTHERWISE, 1, 1, "though nothing that it needs is missing"),
    ],
    ids=["missing", "otherwise, in a worker"],
)
def test_a_skip_without_a_need_fails_the_run(tmp_path, text, workers, status, told):
    for name in ("conftest.py", "needs.py", "levels.py"):
        shutil.copy(needs.TESTS / name, tmp_path)
    table = (tmp_path / "needs.py").read_text()
    (tmp_path / "needs.py").write_text(table.replace('find_spec("ziglang") is not None', "False"))
    (tmp_path / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-rs", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [*command, "-p", "xdist", "-n", str(workers), "test_it.py"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, check=False,
    )  # fmt: skip
    assert (done.returncode, told in done.stdout) == (status, True), done.stdout + done.stderr
