"""Convolutions of few input channels: numbers through the emulator, choices, refusals, and text for every arch."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import choose
from tilesmith.dispatch.facts import options_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.cuda.first.solver import FirstLayerSolver, FirstLayerWrwSolver
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

SOLVERS = {"fwd": FirstLayerSolver(), "wrw": FirstLayerWrwSolver()}


def conv(c=3, k=24, taps=(7, 7), size=(15, 17), **more):
    more = {"dtype": "bf16", "padding": 1, **more}
    return ConvSignature((2, *size, c), (k, *taps, c), shared_layout="NHWC", **more)


def video(mode: str):
    return ConvSignature(
        (1, 4, 6, 9, 3), (8, 3, 2, 3, 3), stride=(1, 2, 1), padding=(1, 0, 2), dilation=(2, 1, 1), dtype="bf16",
        shared_layout="NDHWC", mode=mode,
    )  # fmt: skip


BIASED = Epilogue(bias=True, activation="leaky_relu")
RECTIFIED = Epilogue(bias=True, activation="relu")
CASES = [
    (conv(k=32, taps=(5, 5), size=(12, 48), padding=2), (16, 4, 1, 32, 0, 1)),
    (conv(k=21, taps=(3, 3), epilogue=BIASED), (8, 4, 1, 16, 0, 1)),
    (conv(stride=2, padding=3, epilogue=RECTIFIED), (16, 4, 1, 32, 0, 1)),  # the bias is one of the products' units
    (conv(4, 16, (4, 4), stride=4, padding=0, epilogue=RECTIFIED), (8, 4, 1, 16, 0, 1)),  # no product lacks a unit
    (conv(k=16, taps=(3, 3), epilogue=RECTIFIED, output_dtype="fp32"), (8, 4, 1, 16, 0, 1)),
    (conv(k=8, taps=(3, 3), size=(8, 32)), (16, 4, 1, 8, 0, 1)),  # half of the lanes store
    (conv(1, 40, (5, 5), stride=1, padding=((2, 1), (0, 3)), dtype="fp16"), (16, 4, 2, 48, 0, 2)),
    (conv(2, 8, (3, 7), stride=(1, 3), dilation=(2, 1), padding=3), (32, 4, 1, 8, 0, 1)),
    (conv(4, 16, (1, 3), padding=(0, 2), dilation=(1, 2), output_dtype="fp32"), (8, 4, 1, 16, 0, 1)),
    (conv(7, 9, (2, 3), stride=(3, 2)), (8, 4, 1, 16, 0, 1)),
    (video("fwd"), (16, 4, 1, 8, 0, 1)),
    (video("wrw"), (2, 8, 3, 1, 1, 1)),
    (conv(stride=2, padding=3, mode="wrw"), (2, 16, 4, 2, 2, 1)),
    (conv(1, 40, (5, 5), stride=1, padding=((2, 1), (0, 3)), dtype="fp16", mode="wrw"), (4, 8, 4, 1, 1, 1)),
    (conv(2, 9, (3, 7), stride=(1, 3), dilation=(2, 1), padding=3, mode="wrw"), (4, 8, 2, 1, 2, 1)),
    (conv(7, 16, (2, 3), stride=(3, 2), kernel_dtype="fp32", mode="wrw"), (2, 8, 2, 1, 1, 1)),
]


def config(solver, values) -> Config:
    return Config(tuple(zip((axis.name for axis in solver.axes), values, strict=True)))


@pytest.mark.parametrize(("signature", "values"), CASES, ids=lambda v: v.key()[12:70] if hasattr(v, "key") else "")
def test_numbers(signature, values, emulating):
    signature = signature.canonical
    geometry, solver = signature.geometry, SOLVERS[signature.mode]
    chosen = config(solver, values)
    assert solver.applicable(geometry, H200) == Accepted()
    assert solver.search_space(geometry, H200).contains(chosen)
    made = executable(signature, solver.draft(geometry, chosen, H200), emulating)
    check_numbers(signature, made)


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv(8), "channels"),
        (conv(dtype="fp32"), "dtype"),
        (conv(taps=(40, 40), size=(41, 41)), "filter"),
        (ConvSignature((2, 3, 9, 9), (8, 3, 3, 3), dtype="bf16"), "layout"),
        (conv(7, taps=(13, 13), stride=16, size=(300, 300), mode="wrw"), "window"),
    ],
    ids=["eight channels", "fp32", "1600 taps", "channels first", "a window of 300 columns"],
)
def test_refusals_name_their_reason(signature, word):
    verdict = SOLVERS[signature.mode].applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict), verdict


def of_network(mode: str, size: int, c: int, k: int, taps: int, stride: int):
    return ConvSignature(
        (16, size, size, c), (k, taps, taps, c), stride=stride, padding=taps // 2, mode=mode, dtype="bf16",
        shared_layout="NHWC",
    ).canonical  # fmt: skip


LAYERS = [of_network(mode, *sizes) for mode in ("fwd", "wrw") for sizes in ((224, 3, 64, 7, 2), (128, 1, 32, 5, 1))]


@pytest.mark.parametrize("mode", ["fwd", "wrw"])
def test_the_table_chooses_it_for_planes(mode):
    # Rows of pixels whose channels lie together are `first_rows`'.
    signature = ConvSignature(
        (16, 3, 224, 224), (64, 7, 7, 3), stride=2, padding=3, mode=mode, dtype="bf16", input_layout="NCHW",
        kernel_layout="NHWC", output_layout="NHWC",
    ).canonical  # fmt: skip
    found = choose(options_of(signature, H200), (), mode="fast")
    assert isinstance(found, Choice)
    assert found.solver == SOLVERS[mode].name


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_untuned_kernels_compile_without_spills(arch, tmp_path):
    """The large layers on an H200, one small one on each of the others."""
    target, sources = CUDA_TARGETS[arch], {}
    for signature in {"sm_80": LAYERS[1:2], "sm_120a": LAYERS[3:]}.get(arch, LAYERS[::2]):
        geometry, solver = signature.geometry, SOLVERS[signature.mode]
        for source in solver.draft(geometry, solver.default_config(geometry, target), target).sources:
            sources[source.symbol] = source
    found = build_unit(list(sources.values()), target, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []


@pytest.fixture(scope="module")
def size_with(tmp_path_factory):
    """``size_with(epilogue)``: the bytes of a 7x7 layer's machine code."""
    solver, cubin = SOLVERS["fwd"], tmp_path_factory.mktemp("sizes") / "kernel.cubin"

    @cache
    def of(epilogue):
        signature = replace(LAYERS[0], epilogue=epilogue)
        draft = solver.draft(signature.geometry, config(solver, (16, 8, 2, 64, 1, 1)), H200)
        build_unit(list(draft.sources), H200, cubin)
        return cubin.stat().st_size

    return of


@pytest.mark.parametrize(
    ("epilogue", "nothing"), [(RECTIFIED, True), (Epilogue(activation="relu"), True), (BIASED, False)],
    ids=["bias and relu", "relu", "leaky relu"],
)  # fmt: skip
def test_bias_and_relu_cost_no_instruction(epilogue, nothing, size_with):
    """A bias is multiplied where a product lacks a unit, and the conversion of results clamps.

    An addition and two comparisons for each result made a 7x7 layer 24 % slower.
    """
    sizes = [size_with(each) for each in (Epilogue(), epilogue)]
    # Of 16 bytes an instruction: reading the bias is some 50, an operation on each of a thread's results 64.
    assert (sizes[1] - sizes[0] < 1500) == nothing, sizes
