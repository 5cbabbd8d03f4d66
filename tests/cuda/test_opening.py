"""``open_device`` opens a GPU in a thread of its own, and says nothing where there is none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tilesmith
from tilesmith.errors import LaunchError, TargetError
from tilesmith.runtime import opening
from tilesmith.targets.driver import driver

# What has been imported when the call returns.
LIGHT = """
import sys, tilesmith
tilesmith.open_device("cuda:0")
tilesmith.open_device()
print("numpy" in sys.modules, "tilesmith.dispatch.launchable" in sys.modules)
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(opening, "_opening", {})


def opened(name):
    tilesmith.open_device(name)
    for thread in opening._opening.values():
        thread.join(60)
        assert not thread.is_alive()


def test_each_context_is_retained_once(cuda):
    opened("cuda:1")
    assert "retain device=1" in cuda.log()
    opened("cuda:1")
    assert cuda.log() == []


def test_what_does_not_exist_is_left_to_the_call_that_uses_it(cuda, monkeypatch):
    opened("cuda:77")
    monkeypatch.setenv("TILESMITH_LIBCUDA", "/nowhere/libcuda.so.1")
    opened("cuda")
    with pytest.raises(LaunchError, match="no CUDA driver"):
        driver()
    for name in ("cpu", "gpu", "cuda:x", 0):
        with pytest.raises(TargetError, match=f"device {name!r}"):
            tilesmith.open_device(name)


def test_it_imports_little(cuda):
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], env=os.environ | {"TILESMITH_LIBCUDA": str(cuda.path)}, capture_output=True,
        text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "False False\n"
