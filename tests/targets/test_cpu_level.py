"""``TILESMITH_CPU_LEVEL`` caps the level of the target that this machine is, whatever else knows the processor."""

import pytest

from tilesmith import env
from tilesmith.dispatch.locations import target_of
from tilesmith.doctor import health
from tilesmith.errors import EnvironmentValueError, TargetError
from tilesmith.targets import cpu, detect
from tilesmith.targets.cpu import CPU_TARGETS, archs_within, cpu_target
from tilesmith.targets.fitting import Fit, fit_of
from tilesmith.toolchain import memo
from tilesmith.toolchain.cache import ArtifactCache

V2, V3, V4, BF16, AMX = env.CPU_LEVELS


def test_the_levels_are_those_of_the_records():
    assert tuple(arch for arch, _ in cpu._X86_LEVELS) == env.CPU_LEVELS
    assert set(env.CPU_LEVELS) < set(CPU_TARGETS)


@pytest.mark.parametrize(
    ("arch", "cap", "target"),
    [
        (AMX, "", AMX),
        (AMX, BF16, BF16),
        (AMX, V3, V3),
        (BF16, AMX, BF16),
        (BF16, "", BF16),
        (BF16, BF16, BF16),
        (BF16, V4, V4),
        (BF16, V3, V3),
        (BF16, V2, V2),
        (V3, V4, V3),  # what the processor lacks
        (V2, BF16, V2),
        ("aarch64", V2, "aarch64"),
    ],
)
def test_the_lower_of_processor_and_cap(processor, monkeypatch, arch, cap, target):
    processor(arch, 1 << 15, 1 << 20, 0)
    monkeypatch.setenv("TILESMITH_CPU_LEVEL", cap.upper())
    host = detect.host_target(3)
    assert host == cpu_target(target, 3, (1 << 15, 1 << 20, 0))
    assert detect.hidden_arch() == (arch if arch != target else "")
    assert detect.host_cpu().arch == arch
    assert archs_within(arch)[-1] == arch


def test_a_level_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("TILESMITH_CPU_LEVEL", "v3")
    with pytest.raises(EnvironmentValueError, match="TILESMITH_CPU_LEVEL='v3' is not one of x86_64-v2, x86_64-v3, "):
        detect.host_target()


def test_what_a_process_keeps_for_the_next_is_the_processor(processor, monkeypatch, tmp_path):
    """A cap ends with its process, and holds for a processor that another process has found out."""
    monkeypatch.setattr(memo, "_done", set())
    monkeypatch.setattr(detect, "boot_id", lambda: "a boot")
    cache = ArtifactCache(tmp_path)
    processor(BF16)
    monkeypatch.setenv("TILESMITH_CPU_LEVEL", V2)
    memo.remember(cache)
    (_, kept) = memo.kept_in(tmp_path)
    assert kept.arch == BF16
    memo._done.clear()
    processor("aarch64")
    monkeypatch.setenv("TILESMITH_CPU_LEVEL", V3)
    assert memo.recall(cache)
    detect._capped_target.cache_clear()
    assert detect.host_target(1).arch == V3
    monkeypatch.delenv("TILESMITH_CPU_LEVEL")
    assert detect.host_target(1).arch == BF16


def test_a_target_above_the_cap_is_refused_by_name(processor, monkeypatch):
    processor(V4)
    above = cpu_target(V4, 2)
    assert target_of(above, None) == above
    monkeypatch.setenv("TILESMITH_CPU_LEVEL", V3)
    assert target_of(cpu_target(V2, 2), None).arch == V2
    with pytest.raises(
        TargetError, match="x86_64-v4:2:generic does not run .* is x86_64-v3:2:generic; TILESMITH_CPU_LEVEL caps it"
    ):
        target_of(above, None)
    with pytest.raises(TargetError, match="which is x86_64-v3:2:generic$"):
        target_of(cpu_target(BF16, 2), None)


def test_the_doctor_says_what_is_hidden(processor, monkeypatch):
    processor(BF16)
    assert "hides" not in next(health._package()).detail
    monkeypatch.setenv("TILESMITH_CPU_LEVEL", V2)
    found = next(health._package()).detail
    assert "x86_64-v2:" in found
    assert "(TILESMITH_CPU_LEVEL hides x86_64-v4-bf16)" in found


# --- matrix tiles, which the kernel allows or not ---


@pytest.fixture
def without_tiles(processor, monkeypatch):
    """A processor with tiles, of which this process may use none."""
    processor(AMX)
    monkeypatch.setattr(detect, "_tiles_allowed", lambda: False)


@pytest.mark.usefixtures("without_tiles")
def test_tiles_that_are_refused_are_not_there(monkeypatch):
    """The facts of another process name the processor, not what this process may do."""
    assert detect.found_cpu().arch == AMX
    assert detect.host_cpu().arch == detect.host_target(2).arch == BF16
    assert (detect.refused_arch(), detect.hidden_arch()) == (AMX, "")
    assert fit_of(detect.host_target(2), f"{AMX}:2:generic") == Fit.NONE
    assert fit_of(cpu_target(AMX, 2), f"{BF16}:2:generic") == Fit.RUNS
    with pytest.raises(TargetError, match="x86_64-v4-amx:2:generic does not run .* is x86_64-v4-bf16:2:generic$"):
        target_of(cpu_target(AMX, 2), None)
    assert "(the kernel does not allow x86_64-v4-amx here)" in next(health._package()).detail
    monkeypatch.setenv("TILESMITH_CPU_LEVEL", V4)
    assert (detect.host_target(2).arch, detect.hidden_arch()) == (V4, BF16)


@pytest.mark.usefixtures("without_tiles")
def test_a_process_without_tiles_keeps_the_processor_for_those_with(monkeypatch, tmp_path):
    monkeypatch.setattr(memo, "_done", set())
    memo.remember(ArtifactCache(tmp_path))
    (_, kept) = memo.kept_in(tmp_path)
    assert kept.arch == AMX


@pytest.mark.parametrize("lowest", [V2, V3, V4, BF16])
def test_other_processors_are_not_asked_for_tiles(processor, monkeypatch, lowest):
    processor(lowest)
    monkeypatch.setattr(detect, "_tiles_allowed", lambda: pytest.fail("asked"))
    assert detect.host_cpu().arch == lowest
