"""One machine under each cap that its processor allows: right numbers, and nothing taken over from another level."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import levels
from tilesmith.dispatch.kept_calls import forget
from tilesmith.dispatch.launchable import get_launchable
from tilesmith.dispatch.measuring import check_launchable
from tilesmith.problems.conv import ConvSignature
from tilesmith.targets.detect import host_cpu

PROBLEMS = [
    ConvSignature((1, 9, 8, 16), (24, 3, 3, 16), padding=1, shared_layout="NHWC", mode=mode, dtype=dtype)
    for mode, dtype in (("fwd", "fp32"), ("bwd", "fp32"), ("wrw", "fp32"), ("fwd", "bf16"))
] + [ConvSignature((1, 9, 8, 16), (16, 3, 3, 1), padding=1, groups=16, shared_layout="NHWC")]


@pytest.fixture
def capped(level, monkeypatch):
    monkeypatch.setenv("TILESMITH_CPU_LEVEL", level.arch)
    return level


def test_calls_under_a_cap_are_right(capped):
    for signature in PROBLEMS:
        launch = get_launchable(signature)
        assert launch.target.arch == capped.arch
        verdict = check_launchable(launch)
        assert verdict.ok, verdict.message


CHILD = """
import json, sys
from tilesmith import ConvSignature, get_launchable

signature = ConvSignature((1, 14, 14, 8), (8, 3, 3, 8), shared_layout="NHWC", padding=1)
launch = get_launchable(signature, threads=1)
result = launch(*signature.get_sample_args(seed=0))
print(json.dumps([launch.plan.target, launch.choice.basis, result.tolist()]))
"""


@pytest.mark.needs_levels
def test_a_hit_that_is_kept_under_one_cap_is_no_hit_under_another(monkeypatch, tmp_path):
    """The third process of a level finds what the second has kept; that of the next level decides anew."""
    monkeypatch.setenv("TILESMITH_FIND_MODE", "hybrid")
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    signature = ConvSignature((1, 14, 14, 8), (8, 3, 3, 8), shared_layout="NHWC", padding=1)
    x, w = (torch.from_numpy(array).double().permute(0, 3, 1, 2) for array in signature.get_sample_args(seed=0))
    want = torch.nn.functional.conv2d(x, w, padding=1).permute(0, 2, 3, 1).numpy()
    for target in (levels.HERE[0], levels.HIGHEST):
        monkeypatch.setenv("TILESMITH_CPU_LEVEL", target.arch)
        for basis in ("measurement", "database", "database"):
            done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            name, found, result = json.loads(done.stdout)
            assert (name, found) == (f"{target.arch}:1:{host_cpu().card}", basis)
            np.testing.assert_allclose(np.array(result), want, atol=1e-4)


def test_a_change_of_the_cap_counts_after_forget(monkeypatch):
    for target in levels.HERE:
        monkeypatch.setenv("TILESMITH_CPU_LEVEL", target.arch)
        forget()
        assert get_launchable(PROBLEMS[0]).target.arch == target.arch
