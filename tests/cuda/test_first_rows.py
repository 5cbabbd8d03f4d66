"""First layers by warpgroups: numbers through the emulator, refusals, and text without spills."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_chain import H200, check_numbers, executable

from tilesmith.dispatch.choice import Choice
from tilesmith.dispatch.choose import choose
from tilesmith.dispatch.facts import options_of
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.solvers.cuda.first.window import staged_row
from tilesmith.solvers.cuda.first_rows.solver import FirstRowsSolver, FirstRowsWrwSolver
from tilesmith.solvers.cuda.first_rows.wide_solver import WideRowsWrwSolver
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
    # More results of a warp than it stores in one piece of unrolled code: two and one at once, pixels of several rows.
    (conv(5, 150, (1, 1), size=(9, 38), padding=0, epilogue=Epilogue(bias=True)), (4, 48, 4, 2, 1)),
    (conv(5, 137, (1, 1), size=(5, 38), padding=0), (4, 48, 4, 2, 1)),
    (conv(stride=2, padding=3, mode="wrw"), (2, 16, 5, 2, 4, 1)),
    (conv(1, 40, (5, 5), size=(12, 45), padding=((2, 1), (0, 3)), dtype="fp16", mode="wrw"), (4, 32, 8, 1, 4, 1)),
    (conv(2, 9, (3, 7), size=(15, 49), stride=(1, 3), dilation=(2, 1), padding=3, mode="wrw"), (4, 16, 6, 1, 2, 1)),
    (conv(7, 16, (2, 3), size=(15, 35), stride=(3, 2), kernel_dtype="fp32", mode="wrw"), (2, 16, 6, 1, 2, 1)),
    (conv(k=136, taps=(4, 4), size=(16, 64), stride=2, mode="wrw"), (4, 32, 8, 1, 8, 1)),  # three blocks of channels
    (video("wrw"), (2, 32, 8, 3, 2, 1)),
]


def config(solver, values) -> Config:
    return Config(tuple(zip((axis.name for axis in solver.axes), values, strict=True)))


WIDE = WideRowsWrwSolver()
WIDE_CASES = [
    # Two warpgroups that share words; two parts of channels, of which the second one is not whole.
    (conv(k=120, stride=2, padding=3, size=(23, 72), mode="wrw"), (2, 32, 3, 1, 128, 1)),
    (conv(1, 56, (9, 9), size=(24, 96), stride=3, padding=4, mode="wrw"), (2, 32, 4, 1, 64, 1)),
    # Two rows at once; rows of dy that do not exist; less than 64 channels, and three blocks of 32.
    (conv(1, 24, (5, 5), size=(13, 56), padding=((2, 1), (0, 3)), dtype="fp16", mode="wrw"), (4, 48, 2, 1, 32, 1)),
    (conv(k=72, stride=2, padding=3, size=(30, 112), mode="wrw"), (4, 56, 1, 3, 32, 1)),
    (conv(4, 16, (2, 3), size=(15, 40), stride=(3, 2), kernel_dtype="fp32", mode="wrw"), (2, 16, 1, 1, 32, 1)),
    (video("wrw"), (2, 16, 2, 1, 32, 1)),
]


@pytest.mark.parametrize(("signature", "values"), WIDE_CASES, ids=lambda v: v.key()[12:70] if hasattr(v, "key") else "")
def test_numbers_of_warpgroups(signature, values, emulating):
    signature = signature.canonical
    chosen = config(WIDE, values)
    assert WIDE.applicable(signature.geometry, H200) == Accepted()
    assert WIDE.search_space(signature.geometry, H200).contains(chosen)
    check_numbers(signature, executable(signature, WIDE.draft(signature.geometry, chosen, H200), emulating))


@pytest.mark.parametrize(("signature", "values"), CASES, ids=lambda v: v.key()[12:70] if hasattr(v, "key") else "")
def test_numbers(signature, values, emulating):
    signature = signature.canonical
    geometry, solver = signature.geometry, SOLVERS[signature.mode]
    chosen = config(solver, values)
    assert solver.applicable(geometry, H200) == Accepted()
    assert solver.search_space(geometry, H200).contains(chosen)
    check_numbers(signature, executable(signature, solver.draft(geometry, chosen, H200), emulating))


STAYING = [
    # a warp's pixels in several rows, results in one piece; runs at even and at odd elements, tiles beyond the image
    (conv(k=16, taps=(3, 3), size=(32, 28), stride=1), (8, 28, 4, 2, 1)),
    (conv(1, 40, (5, 5), size=(15, 61), padding=(2, 3), epilogue=Epilogue(bias=True)), (4, 56, 4, 2, 1)),
    (conv(size=(18, 90), stride=2, padding=3), (4, 28, 4, 1, 1)),
    (conv(stride=2, padding=3, dtype="fp16", epilogue=Epilogue(bias=True, activation="relu")), (2, 16, 4, 1, 2)),
    (conv(k=136, taps=(3, 3), size=(16, 64), stride=2, epilogue=Epilogue(bias=True)), (4, 32, 4, 1, 2)),
    (video(), (2, 16, 4, 2, 1)),
]


@pytest.mark.parametrize(("signature", "values"), STAYING, ids=lambda v: v.key()[12:70] if hasattr(v, "key") else "")
def test_numbers_of_blocks_that_take_tiles_in_turn(signature, values, emulating):
    signature = signature.canonical
    geometry, solver = signature.geometry, SOLVERS["fwd"]
    chosen = config(solver, values)
    threads = 32 * chosen["warps"] * chosen["blocks_per_sm"]
    target = replace(H200, cores=1, threads_per_sm=threads)  # which has no room for more blocks
    assert solver.search_space(geometry, target).contains(chosen)
    assert not solver.tile(geometry, chosen, replace(target, threads_per_sm=2 * threads)).stays
    assert solver.tile(geometry, chosen, target).stays
    check_numbers(signature, executable(signature, solver.draft(geometry, chosen, target), emulating))


def test_results_of_eight_pixels_are_staged_in_different_banks():
    for result in ("bf16", "fp16", "fp32"):
        for columns in range(8, 257, 8):
            row = staged_row(columns, result)
            assert row >= columns * {"fp32": 4}.get(result, 2)
            assert len({pixel * row % 128 for pixel in range(8)}) == 8


def test_tiles_begin_where_pieces_of_16_bytes_do():
    solver, values = SOLVERS["fwd"], (8, 28, 4, 2, 1)
    spaces = {w: solver.search_space(conv(taps=(3, 3), size=(32, w)).canonical.geometry, H200) for w in (28, 56)}
    assert spaces[28].contains(config(solver, values))  # one tile in a row
    assert not spaces[56].contains(config(solver, values))  # the second begins at element 84
    assert spaces[56].contains(config(solver, (4, 56, 4, 2, 1)))


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


@pytest.mark.parametrize("solver", [SOLVERS["fwd"], WIDE], ids=lambda solver: solver.name)
def test_warpgroups_are_needed(solver):
    mode = "fwd" if solver.name == "first_rows" else "wrw"
    verdict = solver.applicable(conv(mode=mode).canonical.geometry, CUDA_TARGETS["sm_80"])
    assert isinstance(verdict, Rejected)
    assert "wgmma" in str(verdict)


@pytest.mark.parametrize(
    ("signature", "word"),
    [
        (conv(k=20, mode="wrw"), "pixels of y"),
        (conv(size=(15, 41), mode="wrw"), "rows of x"),
        (
            ConvSignature((1, 20, 6, 24, 3), (8, 2, 2, 3, 3), dilation=(9, 1, 1), dtype="bf16", mode="wrw",
                          shared_layout="NDHWC"), "dilation",
        ),
    ],
    ids=["20 channels of y", "rows of 123 elements", "dilation 9 along the depth"],
)  # fmt: skip
def test_warpgroups_copy_multiples_of_16_bytes(signature, word):
    verdict = WIDE.applicable(signature.canonical.geometry, H200)
    assert isinstance(verdict, Rejected)
    assert word in str(verdict)


def test_words_of_a_matrix_lie_in_banks_of_their_own():
    signature = conv(k=64, stride=2, padding=3, size=(224, 224), mode="wrw").canonical
    tile = WIDE.tile(signature.geometry, config(WIDE, (8, 16, 2, 3, 64, 1)), H200)
    words = [word for word in tile.words if word is not None]
    plain = tile.words_of(0)
    assert sorted(map(repr, words)) == sorted(map(repr, plain))
    # 77 words in ten eights: a turn of shared memory for each at the least.
    assert (tile.turns(words), tile.turns(plain)) == (10, 16)


@pytest.mark.parametrize("mode", ["fwd", "wrw"])
@pytest.mark.parametrize("layer", [(224, 3, 64, 7, 2), (128, 1, 32, 5, 1)])
def test_the_table_chooses_it(mode, layer):
    # An H100, 64 images, forward: 47.3 us for 72.5 (7x7), 25.4 for 35.7 (5x5). An H200, weights: 47.5 for 69.5 and 25.4
    # for 29.9, which the kernel without warpgroups takes.
    size, c, k, taps, stride = layer
    signature = ConvSignature(
        (64, size, size, c), (k, taps, taps, c), stride=stride, padding=taps // 2, mode=mode, dtype="bf16",
        shared_layout="NHWC",
    ).canonical  # fmt: skip
    found = choose(options_of(signature, H200), (), mode="fast")
    assert isinstance(found, Choice)
    assert found.solver == (SOLVERS[mode] if mode == "fwd" else WIDE).name


BIAS = Epilogue(bias=True, activation="relu")


@pytest.mark.parametrize(
    ("signature", "values"),
    [
        (conv(1, 16, (7, 2), (83, 88), stride=3, padding=((2, 2), (0, 0)), epilogue=BIAS), (12, 16, 4, 2, 5)),
        (conv(5, 24, (9, 4), (91, 32), stride=(1, 2), padding=((3, 3), (1, 1)), epilogue=BIAS), (12, 16, 12, 1, 1)),
    ],
    ids=["several rows", "one row"],
)
def test_constant_words_are_not_moved_while_products_run(signature, values, tmp_path):
    """Half of a variant's last product has no words: the build refuses kernels that copy registers between products."""
    geometry, chosen = signature.canonical.geometry, config(SOLVERS["fwd"], values)
    threads = 32 * chosen["warps"] * chosen["blocks_per_sm"]
    tile = SOLVERS["fwd"].tile(geometry, chosen, replace(H200, cores=1, threads_per_sm=threads))
    assert tile.stays
    assert tile.words[8 * tile.steps - 4 : 8 * tile.steps] == (None,) * 4
    source = SOLVERS["fwd"].draft(geometry, chosen, tile.target).sources[0]
    (found,) = build_unit([source], H200, tmp_path / "unit.cubin")
    assert found.spill_store_bytes == 0


def test_untuned_kernels_compile_without_spills(tmp_path):
    sources = {}
    for mode, solver in (*SOLVERS.items(), ("wrw", WIDE)):
        for each in (
            conv(k=64, stride=2, padding=3, size=(224, 224), mode=mode),
            conv(1, 56, (9, 9), size=(120, 480), stride=3, mode=mode),
        ):
            geometry = each.canonical.geometry
            for source in solver.draft(geometry, solver.default_config(geometry, H200), H200).sources:
                sources[source.symbol] = source
    # A warp's results are stored by 40 and by 72 stores of a lane.
    for results, values in ((150, (8, 48, 12, 2, 1)), (131, (8, 48, 8, 2, 2))):
        geometry = conv(5, results, (1, 1), size=(38, 38), padding=0).canonical.geometry
        source = SOLVERS["fwd"].draft(geometry, config(SOLVERS["fwd"], values), H200).sources[0]
        sources[source.symbol] = source
    found = build_unit(list(sources.values()), H200, tmp_path / "unit.cubin")
    assert [(r.symbol, r.spill_store_bytes, r.stack_bytes) for r in found if r.stack_bytes or r.spill_store_bytes] == []
    assert [r.symbol for r in found if r.warnings] == []  # of products that are serialised
