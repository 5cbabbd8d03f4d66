"""Plans whose kernels computed wrong numbers in earlier versions are launched from nowhere."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from cuda_chain import CACHE, H200

from library_build import Build, Made, package_of
from library_calls import OK, UNSUPPORTED, Library
from tilesmith import GemmSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.db.layers import open_layers
from tilesmith.dispatch.kept_calls import forget
from tilesmith.errors import NoCompilerError, NoSolutionError
from tilesmith.package.embed.gather import LibraryRequest, make_library
from tilesmith.package.files import PackageFile
from tilesmith.plan.assemble import assemble
from tilesmith.plan.serial import encode, read_head
from tilesmith.plan.withdrawn import MENDS, why_withdrawn
from tilesmith.runtime.package_plans import ranked_plans
from tilesmith.solvers.generation import provenance_of
from tilesmith.solvers.table import candidates
from tilesmith.toolchain import plans
from tilesmith.toolchain.cache import ArtifactCache

TF32 = GemmSignature(128, 256, 512, acc_dtype="tf32", trans_b=True)
DESC = {"op": 1, "m": 128, "n": 256, "k": 512, "dtype": 2, "math_mode": 1, "trans_b": 1}
OLD, TODAY = "wgmma_gemm/6 generator 0123456789abcdef", provenance_of("wgmma_gemm", 6, "cuda")
REASON = "it copies sums that products are still writing"


def made(swap_mn: int, provenance: str) -> Made:
    """A plan of the family that was mended, as if an earlier version had made it."""
    (one,) = candidates(TF32, H200, ("wgmma_gemm",))
    config = one.solver.default_config(one.geometry, H200).replace(swap_mn=swap_mn, block_n=64)
    draft = one.solver.draft(one.geometry, config, H200)
    built = [CACHE.get_or_build(source, H200) for source in draft.sources]
    plan = assemble(draft, TF32, one.name, str(config), H200, [each.digest for each in built], provenance)
    return Made(TF32, plan, tuple(built), draft.sources)


def test_what_is_withdrawn():
    """Of the kernels that were mended those without the mend, whatever they are called in a rewritten problem."""
    key = TF32.canonical.key()
    assert why_withdrawn("wgmma_gemm", key, "block_n=64 swap_mn=1", OLD) == REASON
    assert why_withdrawn("wgmma_gemm_copied@gemm", key, "swap_mn=1 cluster_m=1", "") == REASON
    assert why_withdrawn("wgmma_gemm", key, "swap_mn=1", f"{OLD} mends 0") == REASON
    assert not why_withdrawn("wgmma_gemm", key, "swap_mn=1", TODAY)
    assert not why_withdrawn("wgmma_gemm", key, "swap_mn=0", OLD)
    assert not why_withdrawn("wgmma_conv", key, "swap_mn=1", OLD)
    assert not why_withdrawn("wgmma_gemm", replace(TF32, acc_dtype="fp32").canonical.key(), "swap_mn=1", OLD)
    assert all(mend.solver and mend.wrong for mend in MENDS)


def test_a_plan_of_the_cache_counts_as_missing(tmp_path, monkeypatch, caplog):
    """Of another generator's plans, those that were right are launched as before."""
    cache = ArtifactCache(tmp_path)

    def held(swap_mn: int, provenance: str) -> plans.HeldPlan | None:
        old = made(swap_mn, provenance)
        for artifact in old.artifacts:
            cache.store(artifact.path)
        with monkeypatch.context() as earlier:
            earlier.setattr(plans, "generator_digest", lambda _: "0123456789abcdef")
            plans.keep_plan(cache, old.plan, 6, H200)
        return plans.find_plan(cache, old.plan.problem, "wgmma_gemm", 6, old.plan.config, H200)

    assert held(1, OLD) is None
    assert f"its kernels compute wrong numbers: {REASON}" in caplog.text
    for swap_mn, provenance in ((1, TODAY), (0, OLD)):
        found = held(swap_mn, provenance)
        assert found is not None
        assert found.stale


@pytest.fixture
def packaged(cuda, tmp_path, monkeypatch):
    """``packaged(plans...)``: a package of them is installed, and there is no compiler."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_PACKAGE_PATH", str(tmp_path))

    def none(*_):
        raise NoCompilerError("no NVRTC")

    def install(*found: Made) -> None:
        (tmp_path / "gpu.kdb").write_bytes(package_of(found, H200.name))
        monkeypatch.setattr("tilesmith.toolchain.toolchains.find_toolchain", none)
        forget()

    yield install
    forget()


def test_a_plan_of_a_package_is_passed_over(packaged, caplog):
    packaged(made(1, OLD), made(0, OLD))
    launch = get_launchable(TF32, device="cuda", mode="strict")
    assert "swap_mn=0" in launch.config
    assert f"computes wrong numbers ({REASON}) and is not used" in caplog.text


def test_a_package_without_another_plan_has_no_answer(packaged):
    packaged(made(1, OLD))
    with pytest.raises(NoSolutionError, match="strict mode"):
        get_launchable(TF32, device="cuda", mode="strict")


def test_the_c_library_refuses_it_and_takes_the_next(cuda, tmp_path):
    build = Build(tmp_path, (), H200, ())
    build.write()
    c = Library(build.link("libdeconv.so", "-O0", "-fPIC", "-shared"))
    assert c.c.ts_cuda_open(os.fsencode(cuda.path), None) == OK
    for old, taken in (([(1, OLD)], None), ([(1, OLD), (0, OLD)], 0), ([(1, TODAY)], 1)):
        (tmp_path / "old.kdb").write_bytes(package_of([made(*each) for each in old], H200.name))
        handle = c.open(device=0)
        assert c.load(handle, os.fsencode(tmp_path / "old.kdb")) == OK
        if taken is None:
            status = c.is_supported(handle, c.desc(**DESC))
            assert c.refused(status, UNSUPPORTED, f"compute wrong numbers: {REASON}; build the package anew")
        else:
            (found,) = c.solutions(handle, c.desc(**DESC))
            assert found.config.decode() == str(made(taken, OLD).plan.config)[:127]
        c.destroy(handle)


def test_an_embedded_library_makes_it_anew(tmp_path):
    """The other plans of a package are taken as they are."""
    old, other = made(1, OLD), made(0, OLD)
    (tmp_path / "old.kdb").write_bytes(package_of([old], H200.name))
    (tmp_path / "other.kdb").write_bytes(package_of([other], H200.name))
    held = {}
    for name in ("old", "other"):
        package = PackageFile(tmp_path / f"{name}.kdb")
        assert len(list(ranked_plans(package, TF32, H200))) == (name == "other")
        request = LibraryRequest("lib", "1.0.0", (TF32,), (H200,), (package.load(),))
        (part,) = make_library(request, open_layers(()), CACHE).parts
        (problem,) = part.problems
        held[name] = [each.data for each in problem.plans]
    assert held["other"] == [encode(other.plan)]
    (again,) = map(read_head, held["old"])
    assert not again.withdrawn
    assert again.provenance.startswith("wgmma_gemm")


def test_verify_counts_them(tmp_path, capsys):
    path = tmp_path / "gpu.kdb"
    path.write_bytes(package_of([made(1, OLD), made(0, OLD)], H200.name))
    assert run(["package", "verify", str(path)]) == 0
    assert f"{path}: 1 of its plans compute wrong numbers" in capsys.readouterr().err
    assert run(["package", "verify", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["withdrawn"] == 1
