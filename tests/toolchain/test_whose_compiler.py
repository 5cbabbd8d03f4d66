"""What CC and the environment say of the compiler: kernels compute the same, or lie under a key of their own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tilesmith import ConvSignature, conv, forget, get_launchable
from tilesmith.errors import CompileError, NoCompilerError
from tilesmith.plan.records import Source
from tilesmith.targets.cpu import cpu_target
from tilesmith.targets.cuda import cuda_target
from tilesmith.targets.detect import host_target
from tilesmith.toolchain import compilers, nvrtc
from tilesmith.toolchain.build import build_unit
from tilesmith.toolchain.cache import ArtifactCache, artifact_key
from tilesmith.toolchain.compilers import Compiler, find_compiler
from tilesmith.toolchain.nvrtc import Nvrtc

TARGET = host_target(1)
SMALL = ConvSignature((1, 8, 8, 16), (16, 3, 3, 16), padding=1, shared_layout="NHWC")
# Sums in another order, a division by a product, a NaN that is compared, a zero with a sign: each flag changes one.
ARITHMETIC = Source(
    "c", "ts_arithmetic", "",
    "void ts_arithmetic(float *y, const float *x, long n) {\n"
    "  float s = 0;\n"
    "  for (long i = 0; i < n; i++) s += x[i];\n"
    "  for (long i = 0; i < n; i++) { float v = x[i] / s; v = v != v ? 1 : v; y[i] = -(0.0f - v) + 0.0f; }\n"
    "}\n",
)  # fmt: skip


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("TILESMITH_")] + ["CC"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TILESMITH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILESMITH_DB_PATH", str(tmp_path / "test.db"))
    monkeypatch.setenv("TILESMITH_FIND_MODE", "fast")
    monkeypatch.setenv("TILESMITH_NUM_THREADS", "1")
    forget()
    yield
    forget()


def compiled(path):
    build_unit([ARITHMETIC], TARGET, path, find_compiler())
    return path.read_bytes()


@pytest.mark.parametrize(
    "flag",
    [
        "-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-fassociative-math -fno-signed-zeros",
        "-freciprocal-math", "-ffinite-math-only", "-fno-signed-zeros", "-frounding-math", "-ffp-contract=off",
    ],
)  # fmt: skip
def test_flags_of_cc_that_change_arithmetic_are_taken_back(flag, monkeypatch, tmp_path):
    plain = compiled(tmp_path / "plain.so")
    monkeypatch.setenv("CC", f"cc {flag}")
    assert compiled(tmp_path / "with.so") == plain


@pytest.mark.parametrize("flag", ["-fsingle-precision-constant", "-mfpmath=387", "-mdaz-ftz", "-ffp-model=fast"])
def test_flags_of_cc_that_cannot_be_taken_back_are_refused_by_name(flag, monkeypatch):
    monkeypatch.setenv("CC", f"cc -O1 {flag}")
    with pytest.raises(NoCompilerError, match=f"CC='cc -O1 {flag}': {flag} changes what kernels compute; set CC"):
        find_compiler()


def test_a_compiler_is_its_whole_command_and_what_the_environment_changes_about_it(monkeypatch, tmp_path):
    (tmp_path / "same").symlink_to(compilers.shutil.which("cc"))
    keys = {artifact_key(ARITHMETIC, TARGET, find_compiler())}
    for changes in (
        {"CC": "cc -O1"}, {"CC": "cc -fno-inline"}, {"CC": str(tmp_path / "same")},
        {"COMPILER_PATH": str(tmp_path)}, {"NIX_LDFLAGS": "--sort-common"},
    ):  # fmt: skip
        with monkeypatch.context() as changed:
            for name, value in changes.items():
                changed.setenv(name, value)
            keys.add(artifact_key(ARITHMETIC, TARGET, find_compiler()))
    assert len(keys) == 6
    for name in ("CPATH", "C_INCLUDE_PATH", "LD_PRELOAD"):  # a unit includes nothing and links with nothing
        monkeypatch.setenv(name, "")
    assert artifact_key(ARITHMETIC, TARGET, find_compiler()) in keys
    there, elsewhere = Compiler(("gcc",), "gcc", "1", ("/a/gcc",)), Compiler(("gcc",), "gcc", "1", ("/b/gcc",))
    assert artifact_key(ARITHMETIC, TARGET, there) != artifact_key(ARITHMETIC, TARGET, elsewhere)


def test_records_name_the_flags_that_a_compiler_was_given(monkeypatch):
    plain = find_compiler()
    monkeypatch.setenv("CC", "cc -O1 -g")
    assert find_compiler().identity == f"{plain.identity} with -O1 -g"


def test_kernels_made_with_flags_are_not_those_of_a_process_without_them(monkeypatch):
    """Neither the kernels nor the plans, which are found without asking for a compiler."""
    monkeypatch.setenv("CC", "cc -O1")
    first = get_launchable(SMALL)
    forget()
    assert get_launchable(SMALL).remembered
    monkeypatch.delenv("CC")
    forget()
    second = get_launchable(SMALL)
    assert not first.remembered
    assert not second.remembered
    forget()
    assert get_launchable(SMALL).remembered


def test_clamped_nans_stay_nans_whatever_cc_says(monkeypatch):
    x, w = (np.ones(shape, ml_dtypes.float8_e4m3fn) for shape in ((1, 4, 6, 6), (4, 4, 3, 3)))
    x[0, :, 2, 3] = np.nan
    counts = []
    for cc in ("cc -ffast-math", "cc"):
        monkeypatch.setenv("CC", cc)
        forget()
        y = conv(x, w, padding=1, activation="clamp", low=-1.0, high=1.0)
        counts.append(int(np.isnan(y.astype(np.float32)).sum()))
    assert counts == [36, 36]


def of_32_bits(data: bytes) -> bytes:
    """The same file with the header of one for i386."""
    return data[:4] + b"\1" + data[5:18] + (3).to_bytes(2, "little") + data[20:]


@pytest.mark.needs_linux
def test_an_entry_of_another_elf_class_is_one_miss(tmp_path, caplog):
    cache = ArtifactCache(tmp_path / "cache")
    other = Source("c", "ts_other", "", "int ts_other(void) { return 2; }")
    kept = cache.get_or_build(other, TARGET)
    (tmp_path / "foreign.so").write_bytes(of_32_bits(compiled(tmp_path / "whole.so")))
    foreign = cache.keep(ARITHMETIC, TARGET, find_compiler(), tmp_path / "foreign.so", ())
    assert cache.lookup(ARITHMETIC, TARGET) is None
    assert "for another machine (ELF class 32, machine 3" in caplog.text
    assert cache.get_or_build(ARITHMETIC, TARGET).digest != foreign.digest
    assert cache.lookup(ARITHMETIC, TARGET) is not None
    assert cache.lookup(other, TARGET) == kept
    assert cache.folders() == (cache.directory,)


@pytest.mark.needs_linux
def test_a_plan_whose_kernel_is_of_another_machine_costs_its_own_entry_alone(tmp_path, caplog):
    """As a process left it whose compiler made such files: plan, key and kernel are whole and agree."""
    from tilesmith.db.upkeep import revision_of
    from tilesmith.dispatch.locations import open_cache
    from tilesmith.toolchain.plans import find_todays_plan, keep_plan

    launch = get_launchable(SMALL)
    cache = open_cache()
    revision, target = revision_of(launch.solver), host_target(int(launch.plan.target.split(":")[1]))
    held = find_todays_plan(cache, launch.plan.problem, launch.solver, revision, launch.config, target)
    assert held is not None
    digests = []
    for number, artifact in enumerate(held.artifacts):
        (tmp_path / f"{number}.so").write_bytes(of_32_bits(artifact.data))
        digests.append(cache.store(tmp_path / f"{number}.so").digest)
    keep_plan(cache, replace(held.plan, artifacts=tuple(digests)), revision, target)
    forget()
    again = get_launchable(SMALL)
    assert again.plan.artifacts == launch.plan.artifacts
    assert cache.folders() == (cache.directory,)
    assert not [record for record in caplog.records if "cannot be used" in record.getMessage()]


def test_a_compiler_for_another_machine_is_named(monkeypatch, tmp_path):
    """``CC="gcc -m32"``, on machines that can and on those that cannot."""
    foreign = of_32_bits(compiled(tmp_path / "whole.so"))
    (tmp_path / "made").write_bytes(foreign)
    script = tmp_path / "cc32"
    script.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'gcc (Test) 99'; exit; }\n"
        f'while [ "$1" != -o ]; do shift; done\ncp "{tmp_path}/made" "$2"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    with pytest.raises(CompileError, match=r"gcc \(Test\) 99 makes binaries that .* cannot run \(ELF class 32.*set CC"):
        build_unit([ARITHMETIC], TARGET, tmp_path / "out.so", find_compiler())
    assert not (tmp_path / "out.so").exists()


def test_binaries_are_looked_at_for_the_target_that_they_are_made_for(tmp_path):
    from tilesmith.toolchain.elf import why_it_cannot_run

    header = b"\x7fELF\2" + bytes(13) + (183).to_bytes(2, "little")
    assert why_it_cannot_run(header, cpu_target("aarch64", 1)) is None
    assert "machine 183" in why_it_cannot_run(header, cpu_target("x86_64-v3", 1))
    assert why_it_cannot_run(header, cuda_target("sm_90a")) is None


def test_two_libraries_of_one_nvrtc_version_have_keys_of_their_own(tmp_path):
    for name, size in (("a.so", 10), ("b.so", 10), ("c.so", 11)):
        (tmp_path / name).write_bytes(bytes(size))
    keys = {Nvrtc(str(tmp_path / name), (13, 0)).fingerprint for name in ("a.so", "b.so", "c.so")}
    (tmp_path / "a.so").write_bytes(bytes(12))  # updated in place
    keys.add(Nvrtc(str(tmp_path / "a.so"), (13, 0)).fingerprint)
    assert len(keys) == 4


@pytest.mark.needs_nvrtc
def test_flags_that_the_environment_puts_behind_ours_do_not_reach_the_compiler(monkeypatch, tmp_path):
    for name in ("NVRTC_APPEND_FLAGS", "NVRTC_PREPEND_FLAGS", "CCC_OVERRIDE_OPTIONS"):
        monkeypatch.setenv(name, "--use_fast_math")
    assert not [name for name in Nvrtc("libnvrtc.so", (13, 0)).environment_of(os.environ) if name.startswith("NVRTC_")]
    assert "CCC_OVERRIDE_OPTIONS" not in find_compiler().environment_of(os.environ)
    source = Source("cuda", "ts_div", "", 'extern "C" __global__ void ts_div(float *y, float *x) { *y = *x / y[1]; }\n')
    made = []
    for _ in range(2):
        build_unit([source], cuda_target("sm_90a"), path := tmp_path / f"{len(made)}.cubin", nvrtc.find_nvrtc())
        made.append(path.read_bytes())
        for name in ("NVRTC_APPEND_FLAGS", "NVRTC_PREPEND_FLAGS"):
            monkeypatch.delenv(name)
            monkeypatch.setenv(name, "")
    assert made[0] == made[1]


def test_a_cold_compile_is_told_at_level_debug(tmp_path):
    script = "from tilesmith import get_launchable, parse_key; import sys; get_launchable(parse_key(sys.argv[1]))"

    def told(level):
        done = subprocess.run(
            [sys.executable, "-c", script, SMALL.key()], capture_output=True, text=True, check=True,
            env={**os.environ, "TILESMITH_LOG": level},
        )  # fmt: skip
        return done.stderr

    cold, warm = told("debug"), told("debug")
    assert "tilesmith: DEBUG: cache miss: ts_" in cold
    assert f"{find_compiler().command[0]} " in cold  # the compiler's command
    assert "-shared" in cold
    assert "tilesmith: INFO: compiled ts_" in cold
    assert " ms with " in cold
    assert "tilesmith: DEBUG: cache hit: " in warm
    assert "compiled" not in warm
    assert told("warning") == ""


def test_a_program_with_a_log_of_its_own_keeps_it(monkeypatch):
    from tilesmith.log import start_logging

    monkeypatch.setenv("TILESMITH_LOG", "debug")
    logger = logging.getLogger("tilesmith")
    before = list(logger.handlers)
    start_logging()  # pytest's handlers are at the root
    assert logger.handlers == before
    logger.setLevel(logging.NOTSET)
