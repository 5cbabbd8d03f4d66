"""First layers by warpgroups: numbers through the emulator, refusals, and text without spills."""

from __future__ import annotations

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import choose
from tilesmith.dispatch.facts import options_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.cuda.first_rows.solver import FirstRowsSolver, FirstRowsWrwSolver
from tilesmith.solvers.solver import Accepted, Config, Rejected
from tilesmith.targets.cuda import CUDA_TARGETS
from tilesmith.toolchain.build import build_unit

SOLVERS = {"fwd": FirstRowsSolver(), "wrw": FirstRowsWrwSolver()}


def conv(c=3, k=24, taps=(7, 7), size=(15, 40), **more):
    more = {"dtype": "bf16", "padding": 1, **more}
    return ConvSignature((2, *size, c), (k, *taps, c), shared_layout="NHWC", **more)


def video(mode="fwd"):
    return ConvSignature(
        (1, 4, 6, 24, 3), (8, 3, 2, 3, 3), stride=(1, 2, 1), padding=(1, 0, 2), dilation=(2, 1, 1), dtype="bf16",
        shared_layout="NDHWC", mode=mode,
    )  # fmt: skip


CASES = [
    (conv(1, 56, (9, 9), size=(15, 96), stride=3, padding=4), (4, 32, 4, 2, 1)),  # at even and at odd ones
    (conv(1, 40, (5, 5), size=(12, 45), stride=1, padding=((2, 1), (0, 3)), dtype="fp16"), (3, 32, 4, 2, 1)),
    (conv(k=21, taps=(3, 3), size=(9, 33), epilogue=Epilogue(bias=True, activation="leaky_relu")), (2, 32, 4, 2, 1)),
    (conv(k=16, taps=(3, 3), epilogue=Epilogue(bias=True, activation="relu"), output_dtype="fp32"), (2, 32, 4, 2, 1)),
    # Runs begin at odd elements; rows of 120 elements. The bias is multiplied by a free word of the products; two
    # blocks of columns; with no word free it is added.
    (conv(stride=2, padding=3, dtype="fp16", epilogue=Epilogue(bias=True, activation="relu")), (2, 16, 4, 1, 1)),
    (conv(k=136, taps=(3, 3), size=(16, 64), stride=2, epilogue=Epilogue(bias=True)), (4, 32, 4, 1, 1)),
    (conv(k=16, taps=(4, 4), stride=4, padding=0, size=(17, 70), epilogue=Epilogue(bias=True)), (4, 16, 4, 1, 1)),
    (conv(2, 8, (3, 7), size=(15, 49), stride=(1, 3), dilation=(2, 1), padding=3), (4, 16, 4, 1, 1)),
    (conv(7, 9, (2, 3), size=(15, 35), stride=(3, 2)), (4, 16, 4, 1, 1)),
    (video(), (2, 32, 4, 2, 1)),
    (conv(stride=2, padding=3, mode="wrw"), (2, 16, 5, 2, 4, 1)),
    (conv(1, 40, (5, 5), size=(12, 45), padding=((2, 1), (0, 3)), dtype="fp16", mode="wrw"), (4, 32, 8, 1, 4, 1)),
    (conv(2, 9, (3, 7), size=(15, 49), stride=(1, 3), dilation=(2, 1), padding=3, mode="wrw"), (4, 16, 6, 1, 2, 1)),
    (conv(7, 16, (2, 3), size=(15, 35), stride=(3, 2), kernel_dtype="fp32", mode="wrw"), (2, 16, 6, 1, 2, 1)),
    (conv(k=136, taps=(4, 4), size=(16, 64), stride=2, mode="wrw"), (4, 32, 8, 1, 8, 1)),  # three blocks of channels
    (video("wrw"), (2, 32, 8, 3, 2, 1)),
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
    check_numbers(signature, executable(signature, solver.draft(geometry, chosen, H200), emulating))


def test_a_bias_is_multiplied_where_a_word_is_free():
    asked = [(conv(k=16, taps=taps, epilogue=Epilogue(bias=True), **more), taps) for taps, more in (
        ((7, 7), {"stride": 2}), ((3, 3), {}), ((4, 4), {"stride": 4, "padding": 0}),
        ((3, 3), {"output_dtype": "fp32"}),
    )]  # fmt: skip
    solver = SOLVERS["fwd"]
    tiles = [solver.tile(each.canonical.geometry, config(solver, (2, 32, 4, 2, 1)), H200) for each, _ in asked]
    assert [tile.bias_in_products for tile in tiles] == [True, True, False, False]
    assert [tile.biases for tile in tiles] == [0, 0, 128, 128]


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv(8), "channels"),
        (conv(dtype="fp32"), "dtype"),
        (conv(dilation=2), "dilation"),
        (conv(taps=(60, 60), size=(80, 80)), "filter"),
        (ConvSignature((2, 3, 9, 9), (8, 3, 3, 3), dtype="bf16"), "layout"),
    ],
    ids=["eight channels", "fp32", "dilation", "3600 taps", "channels first"],
)
def test_refusals_name_their_reason(signature, word):
    verdict = SOLVERS[signature.mode].applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict), verdict


def test_warpgroups_are_needed():
    verdict = SOLVERS["fwd"].applicable(conv().canonical.geometry, CUDA_TARGETS["sm_80"])
    assert isinstance(verdict, Rejected)
    assert "wgmma" in str(verdict)


@pytest.mark.parametrize("mode", ["fwd", "wrw"])
@pytest.mark.parametrize("layer", [(224, 3, 64, 7, 2), (128, 1, 32, 5, 1)])
def test_the_table_chooses_it(mode, layer):
    # An H100, 64 images: 47.3 us for 72.5 and 82.4 for 75.9 (7x7; sums have had other banks since), 25.4 for 35.7 and
    # 34.9 for 37.7 (5x5).
    size, c, k, taps, stride = layer
    signature = ConvSignature(
        (64, size, size, c), (k, taps, taps, c), stride=stride, padding=taps // 2, mode=mode, dtype="bf16",
        shared_layout="NHWC",
    ).canonical  # fmt: skip
    found = choose(options_of(signature, H200), (), mode="fast")
    assert isinstance(found, Choice)
    assert found.solver == SOLVERS[mode].name


def test_untuned_kernels_compile_without_spills(tmp_path):
    sources = {}
    for mode, solver in SOLVERS.items():
        for each in (
            conv(k=64, stride=2, padding=3, size=(224, 224), mode=mode),
            conv(1, 56, (9, 9), size=(120, 480), stride=3, mode=mode),
        ):
            geometry = each.canonical.geometry
            for source in solver.draft(geometry, solver.default_config(geometry, H200), H200).sources:
                sources[source.symbol] = source
    found = build_unit(list(sources.values()), H200, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []
