"""Python processes of ours import this package, and nothing else that lies in its folder."""

import subprocess
from pathlib import Path

import pytest

import tilesmith
from tilesmith.compare import trial
from tilesmith.dispatch.background.child import Child
from tilesmith.lab import jobs as lab_jobs
from tilesmith.problems.gemm import GemmSignature
from tilesmith.targets.detect import host_target
from tilesmith.tune import process

HERE = str(Path(tilesmith.__file__).parents[1])


@pytest.mark.parametrize("start", [Child, process.WorkerProcess])
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


def test_a_job_and_a_trial_find_it_too(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", "/users/own")
    given = []

    def ended(*command, **options):
        given.append(options.get("env") or options.get("environment"))
        raise RuntimeError("no process is started")

    monkeypatch.setattr(lab_jobs, "_new_folder", lambda: tmp_path)
    monkeypatch.setattr(subprocess, "Popen", ended)
    monkeypatch.setattr(trial, "follow", ended)
    with pytest.raises(RuntimeError, match="no process is started"):
        lab_jobs.begin_job(["square"], ["tilesmith"])
    with pytest.raises(RuntimeError, match="no process is started"):
        trial._try_alone("odd", GemmSignature(m=4, n=4, k=4), host_target(), 0, print)
    assert [each["PYTHONPATH"] for each in given] == [f"{HERE}:/users/own"] * 2
