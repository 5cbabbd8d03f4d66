"""CUTLASS as a rival: how it is asked, what is listed for a product, how libraries are built, called and left out."""

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilesmith import GemmSignature
from tilesmith.compare import contest as contest_module
from tilesmith.compare import trial
from tilesmith.compare.contest import MOST, contest, hold_contest, kept_order, worth_racing
from tilesmith.compare.cutlass.build import LATE, Compiler
from tilesmith.compare.cutlass.checkout import find_checkout, nvcc_version
from tilesmith.compare.cutlass.kernels import CutlassKernel, _listed, kernels_for, product_of, splits_of
from tilesmith.compare.cutlass.rival import RIVAL, CutlassRival, _turn
from tilesmith.compare.places import keep, kept_path, read_kept
from tilesmith.compare.rival import HungError
from tilesmith.errors import CompileError, LaunchError
from tilesmith.targets.cuda import cuda_target

torch = pytest.importorskip("torch")
TARGET = cuda_target("sm_90a", 132)
HOST = Path(__file__).with_name("cutlass_library.c")


@pytest.mark.needs_compiler
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
def test_operands_are_exchanged_for_row_major_results(form, tmp_path):
    from tilesmith.compare.cutlass.library import CutlassGemm

    signature = GemmSignature(
        5, 7, 6, batch=2, trans_a=form[0] == "t", trans_b=form[1] == "t", alpha=0.5, ldc=8, lda=9, ldb=10
    )
    product = product_of(signature)
    path = tmp_path / "kernel.so"
    layouts = [f"-DLAYOUT_{name}='{side.layout}'" for name, side in (("A", product.a), ("B", product.b))]
    subprocess.run([shutil.which("cc"), "-shared", "-fPIC", *layouts, HOST, "-o", path], check=True, timeout=60)
    rng = np.random.default_rng(3)
    g = signature.geometry
    a, b = (torch.from_numpy(rng.standard_normal(v.batch * v.strides[0]).astype(np.float32)) for v in (g.a, g.b))
    result = torch.full((2, 5, 8), float("nan"))
    (call,) = CutlassGemm(path, product, 2).calls([(a, b)], [result], 0)
    left, right = (t.as_strided((v.batch, v.rows, v.columns), v.strides).double() for t, v in ((a, g.a), (b, g.b)))
    np.testing.assert_allclose(call()[:, :, :7], 0.5 * left @ right, rtol=1e-5, atol=1e-5)
    assert result[:, :, 7].isnan().all()
    assert CutlassGemm(path, product, 8).calls([(a, b)], [result], 0) is None
    (refused,) = CutlassGemm(path, product, 1).calls([(a, b)], [result], 1)
    with pytest.raises(RuntimeError, match="status 7"):
        refused()


@pytest.mark.parametrize(
    ("values", "alignments"),
    [
        ({"n": 64, "k": 64}, (4, 4, 4)), ({"n": 66, "k": 64}, (2, 4, 2)), ({"n": 64, "k": 63}, (4, 1, 4)),
        ({"n": 64, "k": 64, "dtype": "bf16"}, (8, 8, 8)), ({"n": 66, "k": 64, "trans_b": True}, (4, 4, 2)),
    ],
)  # fmt: skip
def test_alignment_is_what_every_row_has(values, alignments):
    product = product_of(GemmSignature(32, **values))
    assert (product.a.alignment, product.b.alignment, product.c.alignment) == alignments


def test_problems_that_the_library_has_no_kernel_for():
    assert product_of(GemmSignature(8, 8, 8, dtype="fp64")) is None
    assert product_of(GemmSignature(8, 8, 8, beta=1.0)) is None
    assert product_of(GemmSignature(8, 8, 8, dtype="bf16", c_dtype="fp32")) is None


def test_k_is_split_while_the_device_has_room():
    kernel = CutlassKernel("simt", (128, 128, 8), True, "")
    assert splits_of(kernel, product_of(GemmSignature(128, 128, 256)), 132) == (1, 2, 3, 4, 6, 8)
    assert splits_of(kernel, product_of(GemmSignature(8192, 8192, 8192)), 132) == (1,)
    assert splits_of(kernel, product_of(GemmSignature(128, 128, 256, batch=2)), 132) == (1,)


@pytest.fixture
def nvcc(tmp_path, monkeypatch):
    """A compiler that makes a library of anything but of text with ``fail`` or ``hang``."""
    monkeypatch.setenv("TILESMITH_LAB_DIR", str(tmp_path / "lab"))
    found = tmp_path / "nvcc"
    found.write_text(
        '#!/bin/sh\nif [ "$1" = --version ]; then echo release 13.0, V13.0.88; exit; fi\n'
        'while [ "$1" != -include ]; do shift; done\n'
        'if grep -q fail "$2"; then echo no such tile; exit 1; fi\n'
        'if grep -q hang "$2"; then sleep 600; fi\n'
        f'cp "$2" "$5"; echo built >> {tmp_path / "log"}\n'
    )
    found.chmod(found.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "include" / "cutlass").mkdir(parents=True)
    lines = (f"#define CUTLASS_{part} {number}\n" for part, number in (("MAJOR", 4), ("MINOR", 2), ("PATCH", 1)))
    (tmp_path / "include" / "cutlass" / "version.h").write_text("".join(lines))
    (tmp_path / "python" / "cutlass_library").mkdir(parents=True)
    (tmp_path / "python" / "cutlass_library" / "generator.py").write_text("")
    monkeypatch.setenv("TILESMITH_CUTLASS_DIR", str(tmp_path))
    return found


def test_kernels_are_compiled_once_and_one_that_fails_or_hangs_is_left_out(nvcc, tmp_path):
    checkout = find_checkout()
    assert (checkout.version, nvcc_version(nvcc)) == ("4.2.1", "13.0")
    kernels = [CutlassKernel(name, (64, 64, 8), True, name) for name in ("good", "fail", "hang", "fine")]
    told = []
    built = Compiler(nvcc, checkout, TARGET).build(kernels, 1.5, told.append)
    assert list(built.libraries) == ["good", "fine"]
    assert built.failed == {"fail": "no such tile", "hang": "not compiled in time"}
    assert built.libraries["good"].read_text() == "good"
    assert len(told) == 5
    again = Compiler(nvcc, checkout, TARGET).build([kernels[0], kernels[3]], 60.0, told.append)
    assert again.libraries == built.libraries
    assert (tmp_path / "log").read_text().count("built") == 2
    assert not list(tmp_path.glob("lab/rivals/cutlass/tmp*"))


def test_the_generator_that_fails_is_told(nvcc, tmp_path):
    (tmp_path / "python" / "cutlass_library" / "__init__.py").write_text("")
    with pytest.raises(CompileError, match="generator fails: ModuleNotFoundError"):
        kernels_for(product_of(GemmSignature(64, 64, 64)), TARGET, find_checkout(), "13.0")


def test_what_is_far_behind_after_a_few_calls_is_not_raced():
    assert worth_racing({"slow": 17.0, "near": 15.0, "fast": 10.0}) == ["fast", "near"]
    many = {str(number): 10.0 + number * 0.01 for number in range(100)}
    assert worth_racing(many) == list(many)[:MOST]


def test_a_race_without_late_kernels_is_held_again(nvcc):
    rival, signature = CutlassRival(), GemmSignature(64, 64, 64)
    path = kept_path("cutlass", str(product_of(signature)), TARGET.name, rival.version())
    for failed, again in (({}, False), ({"k": "no such tile"}, False), ({"k": LATE}, True)):
        assert rival.needs_trial(signature, TARGET) is not False
        keep(path, {"order": [("simt", 1.0)], "wrong": [], "failed": failed})
        assert rival.needs_trial(signature, TARGET) is again
        path.unlink()
    assert not rival.needs_trial(GemmSignature(8, 8, 8, dtype="fp64"), TARGET)


# What CUTLASS's package has that is asked for: kernels of two generations, each with the field that one rule reads.
GENERATOR = """
import argparse
from enum import Enum
from types import SimpleNamespace as N

GemmKind = Enum("GemmKind", "Universal Universal3x Grouped")
LayoutType = Enum("LayoutType", "ColumnMajor RowMajor")
TileSchedulerType = Enum("TileSchedulerType", "Default StreamK")
ComplexTransform = N(none=0)
DataTypeNames = {name: name for name in ("f32", "bf16", "void")}

def define_parser():
    parser = argparse.ArgumentParser()
    for name in ("operations", "architectures", "kernels", "log-level"):
        parser.add_argument(f"--{name}")
    return parser

class Manifest:
    def __init__(self, words):
        self.operations = {"gemm": {}}

class EmitGemmUniversalInstance:
    includes = ["cutlass/gemm.h"]
    def emit(self, each):
        return f"// {each.name}"

EmitGemmUniversal3xInstance = EmitGemmUniversalInstance

def add(manifest, name, kind=GemmKind.Universal, layouts="nt", align=8, c="bf16", opcode="TensorOp",
        math="multiply_add", scheduler=TileSchedulerType.Default):
    def side(element):
        return N(element=element, alignment=align, layout=LayoutType.ColumnMajor, complex_transform=0)
    instruction = N(opcode_class=N(name=opcode), math_operation=N(name=math))
    tile = N(math_instruction=instruction, tile_shape=[128, 64, 32], threadblock_shape=[128, 64, 32])
    manifest.operations["gemm"][name] = {80: [N(
        name=name, gemm_kind=kind, tile_description=tile, A=side("bf16"), B=side("bf16"), C=side(c), D=side("bf16"),
        procedural_name=lambda: name, accumulator_type=lambda: "f32", layout_name=lambda: layouts + "n",
        tile_scheduler=scheduler)]}

def GenerateSM80(manifest, cuda):
    assert cuda == "13.0.0"
    add(manifest, "cutlass_good")
    add(manifest, "cutlass_narrow", align=4)
    add(manifest, "cutlass_wide", align=16)
    add(manifest, "cutlass_other_layout", layouts="nn")
    add(manifest, "cutlass_grouped", kind=GemmKind.Grouped)
    add(manifest, "cutlass_simt", opcode="Simt")
    add(manifest, "cutlass_rounds", math="multiply_add_fast_bf16")

def GenerateSM90(manifest, cuda):
    add(manifest, "cutlass3x_sm90_bf16_bf16_f32_void_bf16_k", GemmKind.Universal3x, c="void")
    add(manifest, "cutlass3x_sm90_bf16_bf16_f32_bf16_bf16_k", GemmKind.Universal3x)
    add(manifest, "cutlass3x_sm90_bf16_bf16_f32_bf16_bf16_sk", GemmKind.Universal3x,
        scheduler=TileSchedulerType.StreamK)
"""


def test_kernels_of_several_problems_are_compiled_together_and_fast_schedules_first(nvcc, tmp_path, monkeypatch):
    names = ("sm90_64x64", "sm90_cooperative", "simt")
    listed = {"nn": names, "nt": ("sm90_pingpong", "simt")}
    monkeypatch.setattr(
        "tilesmith.compare.cutlass.rival.kernels_for",
        lambda product, *_: [CutlassKernel(n, (64, 64, 8), True, n) for n in listed["nt" if product.m == 32 else "nn"]],
    )
    monkeypatch.setattr("tilesmith.compare.cutlass.rival.find_nvcc", lambda: nvcc)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    told = []
    problems = [GemmSignature(64, 64, 64), GemmSignature(64, 32, 64), GemmSignature(8, 8, 8, dtype="fp64")]
    CutlassRival().build(problems, TARGET, 60.0, told.append)
    order = [line.split(": ")[2] for line in told[1:]]
    assert order == ["sm90_cooperative", "sm90_pingpong", "simt", "sm90_64x64"]


def test_what_is_listed_for_a_product(nvcc, tmp_path):
    package = tmp_path / "python" / "cutlass_library"
    (package / "__init__.py").write_text("")
    (package / "generator.py").write_text(GENERATOR)
    for name in ("library", "manifest", "gemm_operation"):
        (package / f"{name}.py").write_text("from cutlass_library.generator import *")
    product = product_of(GemmSignature(64, 64, 64, dtype="bf16", trans_a=True))
    hopper = kernels_for(product, TARGET, find_checkout(), "13.0")
    assert [(k.name, k.tile, k.splits) for k in hopper] == [
        ("good", (128, 64, 32), True), ("sm90_bf16_bf16_f32_void_bf16_k", (128, 64, 32), False),
        ("sm90_bf16_bf16_f32_bf16_bf16_sk", (128, 64, 32), True),
    ]  # fmt: skip
    # The list is kept for later processes, until the generator changes.
    _listed.cache_clear()
    found = find_checkout()
    (package / "library.py").write_text("no program")
    assert kernels_for(product, TARGET, found, "13.0") == hopper
    (package / "generator.py").write_text(GENERATOR + "# newer\n")
    with pytest.raises(CompileError, match="generator fails"):
        kernels_for(product, TARGET, found, "13.0")
    (package / "library.py").write_text("from cutlass_library.generator import *")
    assert "#define TILESMITH_KERNEL cutlass3x_sm90" in hopper[1].text
    assert "#define TILESMITH_CUTLASS3 1" in hopper[1].text
    for arch in ("sm_80", "sm_120a"):
        assert [k.name for k in kernels_for(product, cuda_target(arch, 100), find_checkout(), "13.0")] == ["good"]


@pytest.mark.parametrize(
    ("name", "tile", "turn"),
    [
        ("sm90_tensorop_128x256x32_warpspecialized_cooperative_epi_tma", (128, 256, 32), 0),
        ("sm90_tensorop_64x256x32_warpspecialized_pingpong_epi_tma", (64, 256, 32), 0),
        ("tensorop_s1688gemm_tf32_256x128_16x3_nn_align4", (256, 128, 16), 1),
        ("sm90_tensorop_128x256x32_stream_k_warpspecialized_cooperative_epi_nosmem", (128, 256, 32), 2),
        ("sm90_tensorop_128x256x32_warpspecialized_pingpong_epi_nosmem", (128, 256, 32), 3),
        ("sm90_tensorop_256x256x32_warpspecialized_cooperative_epi_nosmem", (256, 256, 32), 3),
        ("sm90_tensorop_64x128x32_warpspecialized_epi_nosmem", (64, 128, 32), 3),
    ],
)
def test_kernels_that_may_be_fast_are_compiled_first(name, tile, turn):
    assert _turn(CutlassKernel(name, tile, False, "")) == turn


@pytest.mark.parametrize("lost", [False, True])
def test_a_kernel_that_takes_the_context_along_ends_the_race(monkeypatch, lost):
    class Stream:
        device = None

        def synchronize(self):
            if lost:
                raise LaunchError("an illegal memory access was encountered")

    def bad():
        raise RuntimeError("CUTLASS: CUDA error 700")

    monkeypatch.setattr(contest_module, "Flush", lambda *facts: None)
    makers = {"first": bad, "second": lambda: None}
    if lost:
        with pytest.raises(LaunchError, match="first took the device's context along: an illegal"):
            contest(makers, torch.zeros(1), Stream(), TARGET)
    else:
        assert contest(makers, torch.zeros(1), Stream(), TARGET) == ([], ["first"])


class _Endless:
    """An event, and its stream, that a kernel before it does not let pass."""

    device = None

    def __init__(self, *place):
        self.passed = not _Endless.hangs

    def record(self, stream):
        pass

    hangs = False


def test_a_kernel_that_hangs_is_left_out_of_the_next_trial(monkeypatch, tmp_path):
    monkeypatch.setattr(contest_module, "Flush", lambda *facts: None)
    monkeypatch.setattr(contest_module, "Event", _Endless)
    monkeypatch.setattr(contest_module, "HANGS_S", 0.01)

    def hangs():
        _Endless.hangs = True
        return lambda: torch.zeros(1)

    path, tried = tmp_path / "kept.json", []
    makers = {"first": hangs, "second": lambda: tried.append("second")}
    with pytest.raises(HungError, match="first did not end within") as found:
        hold_contest(path, makers, torch.zeros(1), _Endless(), TARGET)
    assert (found.value.name, tried, kept_order(path)) == ("first", [], None)
    _Endless.hangs = False
    assert hold_contest(path, makers, torch.zeros(1), _Endless(), TARGET, listed=2) == ([], ["first"])
    assert tried == ["second"]
    assert read_kept(path) == {"order": [], "wrong": ["first"], "hung": ["first"], "listed": 2}


def test_a_trial_is_held_again_without_what_hung(monkeypatch):
    signature, told, commands = GemmSignature(64, 64, 64, dtype="bf16"), [], []

    def follow(command, seconds, heard, environment):
        commands.append((command, seconds))
        heard("first did not end within 20 s" if len(commands) < 3 else "tell: 4 ways run")
        return trial.HUNG if len(commands) < 3 else 0

    monkeypatch.setattr(trial, "follow", follow)
    monkeypatch.setenv("TILESMITH_RIVAL_SECONDS", "100")
    monkeypatch.setattr(RIVAL, "needs_trial", lambda *facts: True)
    assert trial.untried([RIVAL], signature, TARGET, 0, told.append) == {}
    assert told == ["first did not end within 20 s"] * 2 + ["4 ways run"]
    assert commands[0][0] == commands[2][0]
    assert 90 < commands[2][1] <= 100


def test_a_process_whose_kernel_hangs_ends_at_once(tmp_path):
    """Without the interpreter's own end, which would wait for the device."""
    program = (
        "import atexit, runpy, sys; import tilesmith.problems.keys as keys\n"
        "from tilesmith.compare.rival import HungError\n"
        "def parse_key(key): raise HungError('a kernel did not end within 20 s', 'a kernel')\n"
        "keys.parse_key, sys.argv = parse_key, ['trial', 'cutlass', 'key', 'cpu', '1']\n"
        "atexit.register(print, 'waits')\n"
        "runpy.run_module('tilesmith.compare.trial', run_name='__main__')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (trial.HUNG, "a kernel did not end within 20 s\n"), ended.stderr
