"""Python processes of ours import this package, and nothing else that lies in its folder."""

import subprocess
from pathlib import Path

import pytest

import tilesmith
from tilesmith.dispatch.background import jobs
from tilesmith.tune import process

HERE = str(Path(tilesmith.__file__).parents[1])


@pytest.mark.parametrize("start", [jobs._Process, process.WorkerProcess])
def test_the_package_is_found_first_and_its_modules_are_not(start, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/users/own")
    given = {}

    def refused(command, **options):
        given.update(options["env"])
        raise OSError("no process is started")

    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(OSError, match="no process is started"):
        start()
    assert given["PYTHONPATH"] == f"{HERE}:/users/own"
