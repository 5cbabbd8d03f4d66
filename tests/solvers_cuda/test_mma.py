"""The portable kernel without a GPU: its form in NumPy, its search space, its text compiled for every arch."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tilesmith.codegen.cuda.mma import divisor
from tilesmith.plan.assemble import assemble
from tilesmith.plan.slots import slots_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.geometry import GemmGeometry
from tilesmith.problems.layouts import parse_layout
from tilesmith.problems.samples import sample_args
from tilesmith.solvers.cuda.common.dense import DenseForm
from tilesmith.solvers.cuda.mma.draft import mma_draft
from tilesmith.solvers.cuda.mma.solver import MmaDenseSolver, dense_form
from tilesmith.solvers.cuda.mma.tile import MmaTile
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.targets.cuda import CUDA_TARGETS, cuda_target
from tilesmith.toolchain.build import build_unit
from torch_answer import torch_answer

H200 = cuda_target("sm_90a", 132)
TENSOR, FLOAT = MmaDenseSolver(exact=False), MmaDenseSolver(exact=True)
FULL = Epilogue(bias=True, activation="gelu", residual=True)


def conv(x, w, mode, layout="NHWC", dtype="bf16", **more):
    return ConvSignature(input_shape=x, kernel_shape=w, mode=mode, shared_layout=layout, dtype=dtype, **more)


def gemm(m, n, k, dtype="bf16", **more):
    return GemmSignature(m=m, n=n, k=k, a_dtype=dtype, b_dtype=dtype, c_dtype=dtype, **more)


MODES = ("fwd", "bwd", "wrw")
CONVS = [
    *(conv((2, 5, 6, 3), (4, 3, 2, 3), mode, dtype="fp32", padding=1) for mode in MODES),
    *(conv((1, 6, 7, 4), (6, 3, 3, 2), mode, dtype="fp32", groups=2, padding=(2, 0), stride=(2, 3)) for mode in MODES),
    *(
        conv((2, 7, 9, 2), (3, 2, 3, 2), mode, dtype="fp32", padding=1, dilation=(3, 2), stride=(2, 4))
        for mode in MODES
    ),
    *(conv((1, 3, 4, 5, 2), (3, 2, 3, 2, 2), mode, "NDHWC", "fp32", padding=1, stride=(2, 1, 2)) for mode in MODES),
    *(conv((2, 3, 5, 6), (4, 3, 3, 2), mode, "NCHW", "fp32", padding=1, stride=2) for mode in MODES),
]


def evaluate(form: DenseForm, slots: list[np.ndarray]) -> None:
    """The form's own definition: every result from the addresses that it names."""
    a, b, out = slots[0], slots[1], slots[-1]

    def taps(axis, phase):
        f, s, p, d = form.filter[axis], form.stride[axis], form.padding[axis], form.dilation[axis]
        if form.kind != "bwd":
            return [(r * d - p, r) for r in range(f)]
        return [((phase + p - r * d) // s, r) for r in range(f) if (phase + p - r * d) % s == 0]

    def products(pixel, steps, phase):
        for tap in itertools.product(*(taps(i, phase[i]) for i in range(3))):
            at = [p * s + t[0] for p, s, t in zip(pixel, steps, tap, strict=True)]
            if all(0 <= x < size for x, size in zip(at, form.size, strict=True)):
                yield at, [t[1] for t in tap]

    pixels = [(n, *p) for n in range(max(1, form.rows // int(np.prod(form.base)))) for p in np.ndindex(*form.base)]
    if form.kind == "wrw":
        pixels = [(n, *p) for n in range(form.pixels // int(np.prod(form.base))) for p in np.ndindex(*form.base)]
        channels = np.arange(form.channels) * form.b.channel
        for group, row in itertools.product(range(form.groups), range(form.rows)):
            for i, (n, *pixel) in enumerate(pixels):
                lies = i * form.a.pixel[0] if form.linear else np.dot((n, *pixel), form.a.pixel)
                dy = a[group * form.a.group + row * form.a.line + lies]
                for at, index in products(pixel, form.stride, (0, 0, 0)):
                    x = b[group * form.b.group + np.dot((n, *at), form.b.pixel) + channels]
                    to = group * form.out.group + row * form.out.line + np.dot(index, form.out.tap)
                    out[to + np.arange(form.channels) * form.out.channel] += dy * x
        return
    back = form.kind == "bwd"
    channels, cols = np.arange(form.channels), np.arange(form.cols)
    for group, phase in itertools.product(range(form.groups), np.ndindex(*form.phases)):
        for n, *pixel in pixels:
            place = [p * (s if back else 1) + q for p, s, q in zip(pixel, form.stride, phase, strict=True)]
            if any(p >= size for p, size in zip(place, form.out_size, strict=True)):
                continue
            to = group * form.out.group + np.dot((n, *place), form.out.pixel) + cols * form.out.channel
            out[to] = 0.0
            for at, index in products(pixel, (1, 1, 1) if back else form.stride, phase):
                x = a[group * form.a.group + np.dot((n, *at), form.a.pixel) + channels * form.a.channel]
                where = group * form.b.group + np.dot(index, form.b.tap)
                w = b[where + np.add.outer(channels * form.b.channel, cols * form.b.line)]
                out[to] += x @ w


@pytest.mark.parametrize("signature", CONVS, ids=lambda s: s.key()[:60])
def test_the_form_says_what_the_problem_says(signature):
    signature = signature.canonical
    form = dense_form(signature.geometry)
    assert isinstance(form, DenseForm)
    args = sample_args(signature, 3)
    slots = [np.ravel(arg).astype(np.float64) for arg in args]
    *_, spec = slots_of(signature)
    out = np.zeros(spec.nbytes // 4)
    evaluate(form, [*slots, out])
    layouts = {"fwd": signature.output_layout, "bwd": signature.input_layout, "wrw": signature.kernel_layout}
    layout = parse_layout(layouts[signature.mode])
    axes = [layout.order.index(a) for a in "NCDHW" if a in layout.order]
    assert np.allclose(out.reshape(spec.shape).transpose(axes), torch_answer(signature, args), atol=1e-9)


@pytest.mark.parametrize("value", [1, 2, 3, 5, 7, 49, 641, 65537, 2**30 - 1, 2**31 - 1])
def test_division_by_multiplication_is_exact(value):
    m, s = divisor(value)
    assert 0 < m < 2**32
    rng = random.Random(value)
    edges = [q * value + d for q in (0, 1, 2, (2**31 - 1) // value) for d in (-1, 0, 1)]
    for n in (*edges, *(rng.randrange(2**31) for _ in range(200)), 2**31 - 1):
        if 0 <= n < 2**31:
            assert n * m >> s == n // value


PROBLEMS = [
    *(conv((2, 13, 14, 35), (40, 3, 3, 35), mode, padding=1, dtype=d) for mode in MODES for d in ("fp16", "fp32")),
    *(conv((8, 56, 56, 64), (64, 3, 3, 64), mode, padding=1) for mode in MODES),
    conv((2, 14, 14, 64), (72, 3, 3, 64), "bwd", padding=1, stride=2, epilogue=FULL),
    conv((1, 3, 224, 224), (64, 3, 7, 7), "fwd", "NCHW", padding=3, stride=2),
    conv((2, 14, 14, 64), (64, 3, 3, 8), "wrw", padding=1, groups=8),
    gemm(4096, 4096, 4096),
    gemm(17, 1000, 4099, trans_b=True, alpha=0.5, beta=1.0),
    conv((8, 28, 28, 64), (64, 3, 3, 64), "fwd", dtype="fp32", acc_dtype="tf32", padding=1),
    conv((2, 13, 14, 35), (40, 3, 3, 35), "wrw", dtype="fp32", acc_dtype="tf32", padding=1),
    gemm(4096, 4096, 4096, "fp32", trans_a=True, acc_dtype="tf32"),
    conv((2, 13, 14, 35), (40, 3, 3, 35), "bwd", dtype="int8", padding=1),
    conv((8, 28, 28, 64), (64, 3, 3, 64), "fwd", dtype="int8", padding=1, epilogue=Epilogue(activation="clamp")),
    GemmSignature(4096, 4096, 4096, dtype="int8"),
]
BYTES = [
    *(conv((2, 13, 14, 35), (40, 3, 3, 35), mode, dtype="fp8e4m3", padding=1) for mode in MODES),
    *(conv((8, 28, 28, 64), (64, 3, 3, 64), mode, dtype="fp8e5m2", padding=1) for mode in MODES),
    *(gemm(2048, 4096, 512, "fp8e4m3", trans_a=ta, trans_b=not ta, epilogue=FULL) for ta in (False, True)),
]


def solver_of(signature):
    geometry = signature.canonical.geometry
    accepted = [s for s in (TENSOR, FLOAT) if isinstance(s.applicable(geometry, H200), Accepted)]
    assert len(accepted) == 1 + (geometry.tf32 and not isinstance(geometry, GemmGeometry))
    return accepted[0], geometry


def test_fp8_wants_an_arch_that_has_it():
    for arch, target in CUDA_TARGETS.items():
        for operand, result in (("fp8e4m3", "bf16"), ("bf16", "fp8e5m2"), ("bf16", "bf16")):
            signature = GemmSignature(64, 64, 64, a_dtype=operand, b_dtype=operand, c_dtype=result)
            verdict = TENSOR.applicable(signature.geometry, target)
            if operand == result == "bf16" or arch not in ("sm_80", "sm_86", "sm_87"):
                assert verdict == Accepted()
            else:
                assert str(verdict) == "the target lacks an instruction (fp8)"


@pytest.mark.parametrize("signature", PROBLEMS + BYTES, ids=lambda s: s.key()[:60])
def test_the_untuned_choice_lies_in_the_space_and_makes_a_plan(signature):
    solver, geometry = solver_of(signature)
    for arch in ("sm_89", "sm_120a", "sm_90a") if signature in BYTES else ("sm_80", "sm_86", "sm_90a"):
        target = CUDA_TARGETS[arch]
        config = solver.default_config(geometry, target)
        assert solver.search_space(geometry, target).contains(config)
        assert 0 < solver.predict(geometry, config, target) < 1
        draft = solver.draft(geometry, config, target)
        assert draft == solver.draft(geometry, config, target)
        assemble(draft, signature, solver.name, str(config), target, ["0" * 64] * len(draft.sources))


def test_sizes_are_no_part_of_the_text():
    config = Config(
        (
            ("block_m", 64),
            ("block_n", 64),
            ("block_k", 32),
            ("warps_m", 2),
            ("warps_n", 2),
            ("stages", 3),
            ("split_k", 2),
            ("group_m", 1),
        )
    )
    texts = set()
    for signature in (
        conv((2, 14, 14, 64), (64, 3, 3, 64), "fwd", padding=1),
        conv((9, 30, 17, 128), (256, 5, 2, 128), "fwd", padding=(2, 1), stride=2, dilation=(2, 1)),
    ):
        texts.add(mma_draft(MmaTile(dense_form(signature.geometry), config, H200)).sources)
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv((2, 8, 8, 16), (16, 3, 3, 16), "bgrad"), "direction"),
        (conv((2, 8, 8, 16), (16, 3, 3, 16), "fwd", kernel_dtype="fp16"), "dtype"),
        (gemm(8, 8, 8, "fp64"), "dtype"),
        (gemm(8, 8, 8, beta=1.0, epilogue=FULL), "epilogue"),
    ],
)
def test_refusals_name_their_reason(signature, word):
    verdict = TENSOR.applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict)


def test_loads_are_as_wide_as_strides_allow():
    def vectors(c, pitch, **more):
        strides = {"input_strides": (64 * pitch, 8 * pitch, pitch, 1)}
        form = dense_form(conv((2, 8, 8, c), (16, 1, 1, c), "fwd", **strides, **more).geometry)
        return form.a.vector, form.b.vector

    assert vectors(64, 64) == (8, 8)
    assert vectors(35, 40) == (8, 1)
    assert vectors(36, 36) == (4, 4)
    assert vectors(35, 35) == (1, 1)
    assert vectors(34, 42, dtype="fp32") == (2, 2)


@pytest.mark.parametrize("arch", CUDA_TARGETS)
def test_untuned_kernels_compile_without_spills(arch, tmp_path):
    """Every problem on one arch, in turn; fp8 where an arch has it."""
    target = CUDA_TARGETS[arch]
    turn = list(CUDA_TARGETS).index(arch)
    problems = (PROBLEMS[1:10:2] + PROBLEMS[11:])[turn :: len(CUDA_TARGETS)] + (
        BYTES[turn::4] if target.has_fp8 else []
    )
    sources = {}
    for signature in problems:
        solver, geometry = solver_of(signature)
        for source in solver.draft(geometry, solver.default_config(geometry, target), target).sources:
            sources[source.symbol] = source
    found = build_unit(list(sources.values()), target, tmp_path / "unit.cubin")
    assert len(found) == len(sources)
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []
