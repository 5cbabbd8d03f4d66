"""PTX for GPUs that no record knows: which target they are, packages for them, and what the driver is given."""

import pytest

from tilesmith import GemmSignature, get_launchable
from tilesmith.cli.main import run
from tilesmith.errors import TargetError
from tilesmith.package.build import with_ptx
from tilesmith.package.files import PackageFile
from tilesmith.runtime.executable import Executable
from tilesmith.runtime.package_plans import plan_for
from tilesmith.targets import detect_cuda
from tilesmith.targets.cuda import GPU_ARCHS, PTX_ARCHS
from tilesmith.targets.names import parse_target

COMMAND = "gemmbfp16 --a_h 64 --a_w 96 --b_w 32"
SMALL = GemmSignature(64, 32, 96, dtype="bf16")


@pytest.fixture
def later(cuda, tmp_path, monkeypatch):
    """A device of compute capability 13.0."""
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "test.db"))
    cuda.library.fake_set_major(13)
    detect_cuda._devices.cache_clear()
    yield cuda
    cuda.library.fake_set_major(9)
    detect_cuda._devices.cache_clear()


def test_a_portable_arch_asks_for_no_more_than_every_gpu_has():
    for portable in PTX_ARCHS.values():
        for arch in GPU_ARCHS.values():
            if (arch.cc_major, arch.cc_minor) >= (portable.cc_major, portable.cc_minor):
                for fact in ("shared_bytes_per_block", "threads_per_sm", "blocks_per_sm", "registers_per_sm"):
                    assert getattr(portable, fact) <= getattr(arch, fact), (fact, arch.arch)
        assert not any((portable.has_tma, portable.has_wgmma, portable.has_tcgen05))


def test_targets_of_ptx():
    h200, a100 = parse_target("sm_90a:132:h200"), parse_target("sm_80:108:a100-sxm4-80gb")
    assert [target.name for target in with_ptx((h200, a100, h200))] == [
        h200.name, a100.name, "compute_89:132:h200", "compute_80:108:a100-sxm4-80gb",
    ]  # fmt: skip
    assert parse_target("compute_89:132:h200").name == "compute_89:132:h200"
    with pytest.raises(TargetError, match="PTX is for GPUs, got x86_64-v4:2:generic"):
        with_ptx((parse_target("x86_64-v4:2"),))


@pytest.mark.needs_nvrtc
def test_a_later_gpu_gets_the_ptx_of_a_package(later, tmp_path, capsys):
    """One package of machine code, one of PTX; the later GPU takes the second."""
    out = tmp_path / "out"
    (tmp_path / "small.txt").write_text(f"{COMMAND}\n")
    built = ["package", "build", str(tmp_path / "small.txt"), "--target", "sm_90a:132:h200", "--ptx", "-o", str(out)]
    assert run(built) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "small-compute_89-132-h200.kdb", "small-sm_90a-132-h200.kdb",
    ]  # fmt: skip
    target = detect_cuda.cuda_target_of(0)
    assert (target.name, target.nvrtc_arch) == ("compute_89:132:h200", "compute_89")
    held = plan_for(PackageFile(out / "small-compute_89-132-h200.kdb"), SMALL, target)
    for artifact in held.artifacts:
        assert b".target sm_89\n" in artifact.data
        assert artifact.data.endswith(b"\n\0")
    assert plan_for(PackageFile(out / "small-sm_90a-132-h200.kdb"), SMALL, target) is None
    later.log()
    Executable(held.serial, held.artifacts).load_on(0)
    assert any(line.startswith("load device=0") for line in later.log())
    assert get_launchable(SMALL, device="cuda", mode="fast").target == target
