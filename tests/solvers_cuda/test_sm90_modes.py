"""What the wgmma kernel's modes ask of a launch: clusters, memory, boxes of tensor maps, partial sums."""

from __future__ import annotations

import re

import pytest

from tilesmith.plan.records import Pointer, Space, TensorMap
from tilesmith.problems.conv import ConvSignature
from tilesmith.problems.epilogue import Epilogue
from tilesmith.problems.gemm import GemmSignature
from tilesmith.solvers.cuda.wgmma.solver import ConvSm90Solver, GemmSm90Solver
from tilesmith.solvers.solver import Config
from tilesmith.targets.cuda import cuda_target

H200 = cuda_target("sm_90a", 132)
SOLVER = GemmSm90Solver()
BASE = {
    "warpgroups": 2, "products_m": 1, "block_n": 128, "block_k": 64, "stages": 0, "pingpong": 0, "cluster_k": 1,
    "split_k": 1, "group_m": 1, "taps_inner": 0, "swap_mn": 0, "blocks_per_sm": 1, "mix_layers": 0,
    "store_buffers": 2, "slab_n": 64, "resident": 0, "cluster_m": 1,
}  # fmt: skip


def gemm(m, n, k, **more):
    return GemmSignature(m=m, n=n, k=k, a_dtype="bf16", b_dtype="bf16", c_dtype="bf16", **more).canonical.geometry


def config(**values):
    return Config(tuple((BASE | values).items()))


def launches(problem, **values):
    chosen = config(**values)
    assert SOLVER.search_space(problem, H200).contains(chosen)
    return SOLVER.draft(problem, chosen, H200).run


def maps(launch):
    return [p for p in launch.parameters if isinstance(p, TensorMap)]


@pytest.mark.parametrize("split", range(2, 9))
def test_a_split_tile_has_a_cluster_of_its_own(split):
    (launch,) = launches(gemm(16, 4096, 4096), swap_mn=1, block_n=16, cluster_k=split)
    assert launch.cluster == (split, 1, 1)
    assert launch.grid == (4096 // 128 * split, 1, 1)


def test_a_cluster_exchanges_sums_that_fit_beside_or_in_the_ring():
    space = SOLVER.search_space(gemm(512, 512, 65536), H200)
    assert space.allowed(config(block_n=256, cluster_k=2))
    assert not space.allowed(config(block_n=256, cluster_k=4))  # 7 quarters of 128 KB
    assert not space.allowed(config(cluster_k=2, pingpong=1))


def test_pairs_of_blocks_bring_half_of_their_columns_each():
    alone, pair = (
        launches(gemm(1000, 2000, 3000, trans_b=True)),
        launches(gemm(1000, 2000, 3000, trans_b=True), cluster_m=2),
    )
    assert pair[0].cluster == (2, 1, 1)
    assert pair[0].grid[0] % 2 == 0
    assert maps(pair[0])[0] == maps(alone[0])[0]
    assert (maps(alone[0])[1].box[1], maps(pair[0])[1].box[1]) == (128, 64)
    (turns,) = launches(gemm(1000, 2000, 3000, trans_b=True), cluster_m=2, block_n=136)
    assert maps(turns)[1].box[1] == 136  # 17 times 8: all of them by one block, in turns
    assert not SOLVER.search_space(gemm(100, 2000, 3000), H200).allowed(config(cluster_m=2))


def test_blocks_that_keep_their_columns_walk_along_rows():
    """The grid is a multiple of the tiles in a row, so that the next tile of a block has the same columns."""
    problem = gemm(50176, 384, 128, trans_b=True)
    (plain,), (kept,) = launches(problem), launches(problem, resident=1)
    assert kept.grid[0] % 3 == 0
    assert kept.shared_bytes <= H200.shared_bytes_per_block
    space = SOLVER.search_space(problem, H200)
    assert not space.allowed(config(resident=1, group_m=8))
    assert not space.allowed(config(resident=1, cluster_k=2))
    assert not SOLVER.search_space(gemm(512, 384, 128), H200).allowed(config(resident=1))  # a tile a block
    assert plain.parameters != kept.parameters or plain.symbol != kept.symbol


def test_a_filter_of_several_phases_does_not_stay():
    signature = ConvSignature(
        input_shape=(64, 56, 56, 64), kernel_shape=(64, 3, 3, 64), mode="bwd", padding=1, stride=2,
        shared_layout="NHWC", dtype="bf16",
    )  # fmt: skip
    assert ConvSm90Solver().search_space(signature.canonical.geometry, H200).axes["resident"] == (0,)


def test_exchanged_tiles_leave_by_boxes_of_64_rows():
    (launch,) = launches(gemm(1536, 1536, 1536), swap_mn=1, block_n=144)
    stores = maps(launch)[2:]
    assert [m.box for m in stores] == [(64, 64, 1), (64, 16, 1)]
    assert stores[0].dims == (1536, 1536, 1)


def test_operands_may_be_exchanged_whatever_their_layout():
    """64 rows or a multiple, but any multiple of 8 columns: 3136 x 512 has 132 tiles only the other way around."""
    for b in (False, True):
        assert SOLVER.search_space(gemm(1536, 1536, 1536, trans_b=b), H200).axes["swap_mn"] == (0, 1)
    assert SOLVER.default_config(gemm(3136, 512, 2048, trans_b=True), H200)["swap_mn"] == 1


def test_the_sum_of_slices_reads_what_the_kernel_leaves():
    """Whole tiles as registers hold them; the sum has the kernel's arguments, and a thread for each quad and share."""
    problem = gemm(130, 4096, 14336, ldc=5000)
    chosen = config(swap_mn=1, block_n=136, split_k=20)
    draft = SOLVER.draft(problem, chosen, H200)
    product, total = draft.run
    assert Pointer(Space.WORKSPACE) in product.parameters
    assert product.parameters[4:] == total.parameters
    assert total.programmatic
    quads = 32 * 128 * 136 // 4  # 32 tiles of 128 rows, one of 136 columns
    assert draft.workspace_bytes == 20 * quads * 16
    assert total.grid[0] * total.block[0] == 4 * quads  # each thread loads up to 8 of the 20


def stages_of(problem, **values):
    found = re.search(r"STAGES = (\d+) }", SOLVER.draft(problem, config(**values), H200).sources[0].text)
    assert found is not None
    return int(found[1])


def test_a_block_of_several_tiles_reads_ahead_of_them():
    short = {"trans_b": True}
    assert stages_of(gemm(512, 512, 128, **short)) == 2  # a tile a block: two steps
    assert stages_of(gemm(50176, 512, 128, **short), block_n=256, resident=1) > 4


def test_a_stream_keeps_to_what_is_worth_having_under_way():
    assert stages_of(gemm(128, 4096, 14336)) * 256 * 128 <= 163840 < stages_of(gemm(4096, 4096, 4096)) * 256 * 128


def number(draft, name):
    found = re.search(rf"\b{name} = (\d+) }}", draft.sources[0].text)
    assert found is not None
    return int(found[1])


def flag(draft, name):
    found = re.search(rf"enum : bool {{ {name} = (true|false) }};", draft.sources[0].text)
    assert found is not None
    return found[1] == "true"


@pytest.mark.parametrize(("sizes", "swap", "once"), [
    ((4096, 4096, 4096), 0, (0, 0)),  # bound by products: operands are read again from L2
    ((16, 4096, 4096), 0, (0, 1)), ((16, 4096, 4096), 1, (1, 0)), ((50176, 64, 64), 0, (1, 0)),
    ((96, 128, 50176), 0, (1, 1)),
])  # fmt: skip
def test_what_is_read_once_need_not_stay_in_l2(sizes, swap, once):
    draft = SOLVER.draft(gemm(*sizes), config(warpgroups=1, block_n=64 if min(sizes) > 16 else 32, swap_mn=swap), H200)
    assert (flag(draft, "A_ONCE"), flag(draft, "B_ONCE")) == once


def test_a_matrix_that_all_layers_share_stays_in_l2():
    chosen = config(warpgroups=1, block_n=32)
    for shared, once in (({}, 1), ({"stride_a": 0}, 0)):
        draft = SOLVER.draft(gemm(2048, 32, 512, batch=64, **shared), chosen, H200)
        assert (flag(draft, "A_ONCE"), flag(draft, "B_ONCE")) == (once, 0)


@pytest.mark.parametrize("bk", [64, 128, 256])
@pytest.mark.parametrize("m", [1, 5, 16, 40, 100])
def test_of_few_rows_those_that_exist_are_copied(m, bk):
    """A product reads 64 rows all the same: behind the last stage there must be memory."""
    problem, wgs = gemm(m, 4096, 4096, trans_b=True), 1 + (m > 64)
    chosen = config(warpgroups=wgs, block_n=32, block_k=bk)
    assert SOLVER.search_space(problem, H200).contains(chosen)
    draft = SOLVER.draft(problem, chosen, H200)
    first, second = maps(draft.run[0])[:2]
    assert (first.box, second.box) == ((64, m, 1), (64, 32, 1))
    rows, stages = number(draft, "A_ROWS"), number(draft, "STAGES")
    assert (number(draft, "A_READ"), rows) == (m, -(-m // 8) * 8)
    parts, stage = bk // 64, (rows + 32) * bk * 2
    read = (stages - 1) * stage + (parts - 1) * rows * 128 + 64 * wgs * 128
    barriers = 16 * stages + 16
    assert max(read, stages * stage) + barriers <= draft.run[0].shared_bytes <= H200.shared_bytes_per_block
    as_columns = SOLVER.draft(
        problem, config(warpgroups=1, block_n=min(m, 40) // 8 * 8 or 8, block_k=bk, swap_mn=1), H200
    )
    first, second = maps(as_columns.run[0])[:2]
    assert (first.box, second.box[1]) == ((64, 64, 1), min(m, min(m, 40) // 8 * 8 or 8))
    if m % 8 == 0:  # contiguous rows come in slabs of 64
        by_columns = SOLVER.draft(gemm(m, 4096, 4096, trans_a=True), config(warpgroups=wgs, block_k=bk), H200)
        assert {made.box for made in maps(by_columns.run[0])[:2]} == {(64, bk, 1)}


def test_steps_are_deeper_where_memory_bounds():
    few, square = (SOLVER.search_space(gemm(m, 4096, 4096), H200).axes for m in (128, 4096))
    assert (few["block_k"], square["block_k"]) == ((64, 128, 256), (64,))
    assert (few["stages"], square["stages"]) == ((0, 3, 4, 24), (0, 3, 4))
    assert SOLVER.search_space(gemm(16, 4096, 128), H200).axes["block_k"] == (64,)  # less than two deep steps
    problem = gemm(128, 4096, 14336)
    rings = [number(SOLVER.draft(problem, config(block_k=128, stages=stages), H200), "STAGES") for stages in (0, 24)]
    assert rings[0] < rings[1]
    short = SOLVER.search_space(gemm(128, 4096, 128), H200)  # of two steps, whose ring is full anyway
    assert short.allowed(config())
    assert not short.allowed(config(stages=24))


def test_a_gemm_takes_no_arguments_that_it_does_not_read():
    draft = SOLVER.draft(gemm(300, 328, 200), config(), H200)
    text = draft.sources[0].text
    declared = re.search(r"#define TS_PARAMETERS (.*)", text).group(1).split(",")
    assert len(declared) == len(draft.run[0].parameters) < 40
    assert not any(name in " ".join(declared) for name in ("corner", "phases", "in_size", "filter_tap"))


def test_the_untuned_choice_streams_the_weights_of_few_rows():
    for m in (1, 16):
        chosen = SOLVER.default_config(gemm(m, 4096, 4096, trans_b=True), H200)
        assert chosen["swap_mn"] == 1
        assert chosen["block_n"] <= 16


def test_rows_that_begin_within_a_sector_cost_more():
    even, odd = gemm(1024, 2048, 3008, trans_b=True), gemm(1024, 2048, 3000, trans_b=True)
    chosen = config(block_n=128)
    assert SOLVER.predict(odd, chosen, H200) > 1.1 * SOLVER.predict(even, chosen, H200)


def test_epilogues_keep_the_ways_of_storing_that_can_apply_them():
    problem = gemm(300, 328, 2048, epilogue=Epilogue(bias=True, activation="gelu", residual=True))
    space = SOLVER.search_space(problem, H200)
    assert space.allowed(config(cluster_k=2))
    assert space.allowed(config(swap_mn=1))
    assert space.allowed(config(split_k=2))


@pytest.mark.parametrize(
    ("values", "box"),
    [
        ({"block_n": 128, "resident": 1, "blocks_per_sm": 2, "warpgroups": 1}, (64, 16, 1)),
        ({"block_n": 96, "pingpong": 1}, (64, 16, 1)),
        ({"block_n": 96, "swap_mn": 1, "products_m": 2}, (64, 64, 1)),
    ],
)
def test_a_residual_arrives_where_the_results_leave_from(values, box):
    """Its map is that of the result, but for the address; a part of fewer than 64 columns is copied as 64."""
    problem = gemm(8192, 768, 64, epilogue=Epilogue(bias=True, activation="relu", residual=True))
    (launch,) = launches(problem, **values)
    found, chosen = maps(launch), SOLVER.tile(problem, config(**values), H200)
    assert chosen.staged
    assert len(found) == 5
    stored, residual = found[2], found[4]
    assert (residual.pointer, stored.pointer) == (Pointer(Space.SLOT, 3), Pointer(Space.SLOT, 4))
    assert (residual.dims, residual.strides, residual.box) == (stored.dims, stored.strides, box)
    chunks = chosen.value["products_m"] * -(-chosen.block_n // 64)
    assert chosen.store_buffers == chunks
    assert f"enum : int {{ BUFFERS = {chunks} }};" in SOLVER.draft(problem, config(**values), H200).sources[0].text


def test_residuals_of_sums_that_are_not_stored_through_maps_are_read_one_by_one():
    problem = gemm(300, 328, 2048, epilogue=Epilogue(residual=True))
    for values in ({"split_k": 2}, {"cluster_k": 2}):
        assert not SOLVER.tile(problem, config(**values), H200).staged
        assert len(maps(launches(problem, **values)[0])) == 4


@pytest.mark.parametrize(("group", "grid"), [(1, (1, 9, 8)), (2, (2, 9, 4)), (8, (8, 9, 1))], ids=str)
def test_the_grid_has_an_axis_for_each_way_of_a_block_with_one_tile(group, grid):
    (launch,) = launches(gemm(1024, 1152, 640), group_m=group)
    assert launch.grid == grid
    assert launch.cluster == (1, 1, 1)


def test_rows_that_a_group_does_not_divide_are_walked_as_the_config_says():
    """Measured: a walk by a divisor of the group took 1.42 times as long."""
    (launch,) = launches(gemm(9 * 128, 1024, 640), group_m=8)
    assert launch.grid == (72, 1, 1)
    assert not SOLVER.tile(gemm(9 * 128, 1024, 640), config(group_m=8), H200).once


def test_blocks_with_one_tile_are_told_nothing_about_the_walk():
    """Products of other sizes, and of other walks, are the same text; where blocks have several tiles it is another."""
    draft = SOLVER.draft(gemm(1024, 1024, 640), config(), H200)
    assert number(draft, "FIRST") == number(draft, "STAGES")
    taken = re.search(r"#define TS_PARAMETERS (.*)\n", draft.sources[0].text)
    assert taken is not None
    assert not re.search(r"\b(total|tiles_m|tiles_n|by_\w+)\b", taken[1])
    assert re.search(r"\bsteps\b", taken[1])
    for other, values in ((gemm(768, 1152, 1280), {"group_m": 2}), (gemm(640, 1024, 1536), {})):
        assert SOLVER.draft(other, config(**values), H200).sources == draft.sources
    long = [SOLVER.draft(gemm(m, 1024, k), config(), H200).sources for m, k in ((640, 3200), (1024, 4096))]
    assert long[0] == long[1]
    assert SOLVER.draft(gemm(2048, 2048, 640), config(), H200).sources != draft.sources
    assert number(SOLVER.draft(gemm(1024, 1024, 64), config(), H200), "FIRST") == 1  # of two stages


def test_the_next_kernel_begins_after_the_last_copies_but_of_long_sums_of_small_tiles():
    def early(problem, **values):
        return "EARLY = true" in SOLVER.draft(problem, config(**values), H200).sources[0].text

    assert early(gemm(1024, 1024, 3072))
    assert early(gemm(2048, 2048, 512))  # blocks with several tiles
    assert early(gemm(1024, 1024, 1280), warpgroups=1)
    assert not early(gemm(1024, 1024, 1288), warpgroups=1)  # neighbours that read the same would not be side by side
    assert early(gemm(1024, 1024, 3072), warpgroups=1, cluster_m=2)
    for values in ({"cluster_k": 2}, {"split_k": 2}):
        assert not early(gemm(1024, 1024, 3072), **values)


def test_the_untuned_choice_has_one_block_an_sm():
    """Blocks of two calls beside one another on an SM were slower in rows."""
    for problem in (gemm(512, 256, 640), gemm(512, 384, 256), gemm(512, 512, 512)):
        assert SOLVER.default_config(problem, H200)["blocks_per_sm"] == 1


@pytest.mark.parametrize("sizes", [(1000, 2000, 3000), (968, 1376, 2616)])
@pytest.mark.parametrize("trans_b", [False, True])
def test_the_untuned_choice_is_a_cluster_of_eight_where_rows_begin_inside_sectors(sizes, trans_b):
    """Measured: 1.29 to 1.47 times as fast as single blocks."""
    problem = gemm(*sizes, trans_b=trans_b)
    assert SOLVER.default_config(problem, H200)["cluster_m"] in (24, 42)
    ranked = {each["cluster_m"] for each in SOLVER.ranked(problem, H200)}
    assert ranked >= {2, 4, 24, 41, 42}  # for a search to try


def test_clusters_of_four_and_eight_are_for_long_sums_and_rows_that_begin_inside_sectors():
    assert SOLVER.default_config(gemm(1000, 904, 328, trans_a=True), H200)["cluster_m"] < 4
    for sizes in ((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (512, 4096, 4096)):
        ranked = SOLVER.ranked(gemm(*sizes), H200)
        assert ranked[0]["cluster_m"] == 1
        assert max(each["cluster_m"] for each in ranked) <= 4


def test_rows_inside_lines_count_where_a_product_reads_by_columns():
    def cost(problem):
        return [round(each, 2) for each in SOLVER.forms(problem)[0].request_costs]

    assert cost(gemm(1024, 1024, 1024)) == cost(gemm(1024, 1024, 1040, trans_b=True)) == [1, 1]
    assert cost(gemm(1024, 1040, 1024)) == [1, 2.75]  # rows of B are 65 sectors
    assert cost(gemm(1024, 1024, 1032, trans_b=True)) == [2.3, 2.3]
    assert cost(gemm(1024, 1024, 1032)) == [2.3, 1]


def test_clusters_of_up_to_eight_bring_parts_or_all_in_turns():
    def boxes(problem, **values):
        (launch,) = launches(problem, **values)
        return launch.cluster[0], launch.grid, [m.box[1] for m in maps(launch)[:2]]

    problem = gemm(968, 1376, 2616, trans_b=True)
    assert boxes(problem, block_n=104, cluster_m=42) == (8, (8, 7, 2), [64, 104])  # 13 times 8 columns for four
    assert boxes(problem, block_n=128, cluster_m=24) == (8, (8, 3, 4), [32, 64])
    assert boxes(problem, block_n=128, cluster_m=41) == (4, (4, 11, 2), [128, 32])
    (several,) = launches(gemm(4096, 4096, 512, trans_b=True), cluster_m=42)
    assert several.grid == (120, 1, 1)  # 15 clusters of eight are on the chip at once


def test_squares_of_blocks_bring_half_of_their_rows_and_columns_each():
    problem = gemm(1000, 2000, 3000, trans_b=True)
    alone, square = launches(problem, block_n=144), launches(problem, block_n=144, cluster_m=4)
    assert square[0].cluster == (4, 1, 1)
    assert square[0].grid == (4, 7, 4)  # clusters of 256 x 288
    assert [m.box[1] for m in maps(alone[0])[:2]] == [128, 144]
    assert [m.box[1] for m in maps(square[0])[:2]] == [64, 72]
    (several,) = launches(gemm(4096, 4096, 512, trans_b=True), cluster_m=4)
    assert several.grid == (120, 1, 1)  # 30 clusters of four are on the chip at once
    for other, values in (
        (gemm(1000, 128, 3000), {}),  # one tile in a row
        (gemm(1000, 2000, 3000), {"split_k": 2}),
    ):
        assert not SOLVER.search_space(other, H200).allowed(config(cluster_m=4, **values))
