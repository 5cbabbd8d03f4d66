"""A limit of workspace: what is chosen obeys it in every mode, and what cannot obey says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chain import TWO_THREADS
from tilesmith import ConvSignature, GemmSignature, get_launchable
from tilesmith.errors import NoSolutionError
from tilesmith.measure.accuracy import verify
from tilesmith.plan.assemble import workspace_bytes
from tilesmith.solvers import reasons
from tilesmith.solvers.solver import Accepted, Rejected
from tilesmith.solvers.table import candidates
from tilesmith.targets.cuda import cuda_target

H200 = cuda_target("sm_90a", 132)
WRW = ConvSignature((4, 28, 28, 64), (64, 3, 3, 64), padding=1, shared_layout="NHWC", mode="wrw")
DEEP = GemmSignature(m=128, n=128, k=1 << 15, dtype="bf16")


def needs(candidate, config, target):
    return workspace_bytes(candidate.solver.draft(candidate.geometry, config, target), target)


def accepted(signature, target):
    return {c.name: c for c in candidates(signature, target) if isinstance(c.verdict, Accepted)}


@pytest.mark.parametrize(("signature", "target"), [(WRW, TWO_THREADS), (DEEP, H200)], ids=["cpu", "gpu"])
def test_defaults_and_spaces_obey(signature, target):
    free = {name: needs(c, c.solver.default_config(c.geometry, target), target)
            for name, c in accepted(signature, target).items()}  # fmt: skip
    # Enough for all; what the hungriest needs but for a byte; nothing but the scratch of the plain reference.
    for limit in (max(free.values()), max(free.values()) - 1, min(free.values())):
        limited = replace(signature, workspace_limit=limit)
        found = accepted(limited, target)
        assert limited.key() == signature.key().replace("1;", "2;", 1) + f";wlim={limit}"
        assert any(c.plain for c in found.values())
        for name, candidate in found.items():
            default = candidate.solver.default_config(candidate.geometry, target)
            space = candidate.solver.search_space(candidate.geometry, target)
            assert needs(candidate, default, target) <= limit
            assert space.contains(default)
            if free[name] <= limit:
                assert default == accepted(signature, target)[name].solver.default_config(candidate.geometry, target)
            ranked = getattr(candidate.solver, "ranked", None)
            assert ranked is None or all(
                needs(candidate, config, target) <= limit for config in ranked(candidate.geometry, target)[:20]
            )
        for candidate in candidates(limited, target):
            if candidate.name in free and candidate.name not in found:
                assert isinstance(candidate.verdict, Rejected)
                assert candidate.verdict.reason == reasons.WORKSPACE
                assert f"workspace_limit is {limit}" in candidate.verdict.detail
                assert free[candidate.name] > limit


def test_a_config_that_needs_less_takes_the_place_of_the_default():
    """The default of a long sum splits it and adds up in the workspace; without workspace it does not."""
    split = [n for n, c in accepted(DEEP, H200).items() if needs(c, c.solver.default_config(c.geometry, H200), H200)]
    none = accepted(replace(DEEP, workspace_limit=0), H200)
    assert split
    assert set(split) <= set(none)
    *_, library = candidates(replace(DEEP, workspace_limit=0), H200, external=True)
    assert library.external is not None
    assert isinstance(library.verdict, Rejected)


@pytest.mark.parametrize("mode", ["fast", "hybrid", "strict"])
def test_every_mode_obeys(mode, tmp_path, monkeypatch):
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "db"))
    wanted = ConvSignature((1, 9, 9, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC", mode="wrw")
    free = get_launchable(wanted, mode="hybrid", cache=tmp_path / "cache").executable.plan.workspace_bytes
    limited = replace(wanted, workspace_limit=free - 1)
    if mode == "strict":  # nothing is known of the limited problem, whatever is of the other one
        with pytest.raises(NoSolutionError, match="--workspace_limit"):
            get_launchable(limited, mode=mode, cache=tmp_path / "cache")
        get_launchable(limited, mode="hybrid", cache=tmp_path / "cache")
    launch = get_launchable(limited, mode=mode, cache=tmp_path / "cache")
    assert launch.executable.plan.workspace_bytes <= free - 1
    assert verify(lambda *arrays: launch(*arrays[:-1], out=arrays[-1]), limited).ok
    with pytest.raises(NoSolutionError, match=r"c_reference: more workspace than the limit \(needs \d+ bytes or more"):
        get_launchable(replace(wanted, workspace_limit=0), mode="fast", cache=tmp_path / "cache")
