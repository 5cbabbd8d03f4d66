"""The record of constants measured on a GPU card: each field has its unit and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tilesmith.targets.fits.units import Unit

Pair = tuple[float, float]
Shares = tuple[float, ...]
Counts = tuple[tuple[int, ...], ...]
C, R, SECONDS, RATE, SHARE = Unit.CYCLES, Unit.PER_CYCLE, Unit.SECONDS, Unit.BYTES_PER_S, Unit.SHARE


@dataclass(frozen=True)
class TileFit:
    """The sm_90a kernels of matrix products and of gathered convolutions (``solvers/cuda/wgmma/cost.py``)."""

    clock: Annotated[float, Unit.HERTZ, "The clock under load."]
    macs: Annotated[float, R, "Multiply-adds that an SM starts."]
    shared: Annotated[float, R, "Bytes of shared memory."]
    l2: Annotated[float, R, "Bytes from L2 where neighbouring SMs read the same ones."]
    l2_unshared: Annotated[float, R, "Bytes from L2 where the blocks of a cluster read different ones."]
    step: Annotated[float, C, "Lost at each step of the ring."]
    step_alone: Annotated[float, C, "Lost beside that with one warpgroup, over its products of 64 rows."]
    step_three: Annotated[float, C, "Lost beside that with three warpgroups."]
    weights_alone: Annotated[float, SHARE, "Of a step of wrw with one warpgroup alone on an SM."]
    beyond: Annotated[float, SHARE, "Of a step of pixels whose last block of channels reaches beyond the last."]
    start: Annotated[float, C, "Before the first product and after the last result, beyond an empty kernel's."]
    next_cluster: Annotated[float, C, "Until a cluster takes the place of one that ended."]
    epilogue: Annotated[float, C, "Of a tile's results, beside their stores."]
    stored: Annotated[float, R, "Results stored through a tensor map or in rows."]
    scattered: Annotated[float, R, "Results stored from registers."]
    alone: Annotated[float, SECONDS, "Of each result of the whole product, where rows of odd lengths are stored."]
    turned: Annotated[float, C, "That a warpgroup's warps wait for one another, for each 128 bytes of columns as rows."]
    narrow_rows: Annotated[Pair, C, "Of a row of fewer than 128 bytes: a residual's, and any of parts of sectors."]
    packed: Annotated[float, C, "Of 64 columns of a warp's 16 rows that are stored as they lie, of any length."]
    kept_sums: Annotated[float, R, "Partial sums stored."]
    reduce: Annotated[float, C, "Of the sum of a cluster."]
    sent: Annotated[float, R, "Bytes that the blocks of a cluster send one another."]
    paired: Annotated[float, C, "That a cluster that shares columns waits at its ends."]
    paired_tile: Annotated[float, C, "That it waits for each tile."]
    hidden: Annotated[float, SHARE, "Of an epilogue, what shows where warpgroups take turns."]
    hidden_beside: Annotated[float, SHARE, "Of an epilogue, what shows beside another block's products."]
    latency: Annotated[float, C, "From asking for bytes of DRAM to their use."]
    refill: Annotated[float, C, "Until a stage is there again, in a matrix product that memory bounds."]
    filled: Annotated[float, R, "Bytes that fill such a stage."]
    half_used: Annotated[float, SHARE, "What half-used boxes cost such a product."]
    full_ring: Annotated[float, SHARE, "Of the time to move, with a ring of all that fits and tiles of several steps."]
    full_ring_few: Annotated[float, SHARE, "The same for few rows of operands that are contiguous along k."]
    few_as_columns: Annotated[float, SHARE, "The same for up to 16 rows as the columns of a tile."]
    reread: Annotated[float, SHARE, "What it costs when several tiles read bytes of the larger operand."]
    overlap: Annotated[float, SHARE, "What the lesser of computing and moving adds to the greater."]
    second_kernel: Annotated[float, SECONDS, "Of one more launch."]
    look: Annotated[float, SECONDS, "Of a launch before the kernel that looks at a filter's planes."]
    partial_bytes: Annotated[float, RATE, "Partial sums written and read through L2."]
    exchanged: Annotated[float, SHARE, "Of the time, what exchanging rows and columns costs."]
    kept: Annotated[float, SHARE, "Of the time of all tiles of a block but the first, what columns that stay save."]
    torn_sector: Annotated[float, SHARE, "Bytes of DRAM for a sector of 32 that two tiles write."]
    torn_line: Annotated[float, SHARE, "Bytes of DRAM for a line of 128 that two tiles write."]
    both: Annotated[float, SHARE, "Of the time to move, for clusters along k of several slices."]
    residual: Annotated[float, SHARE, "Of an epilogue that reads a residual or the former result."]
    gathers: Annotated[float, SECONDS, "Of pixels that are gathered, beside a matrix of as many rows."]
    once: Annotated[float, SECONDS, "Saved by blocks with one tile that have an SM each."]
    torn_clusters: Annotated[Pair, SHARE, "Of the time, for clusters of 4 and of 8 whose rows begin inside sectors."]
    wide_clusters: Annotated[float, SHARE, "Of the time, for other clusters of more than two."]
    launched: Annotated[float, SECONDS, "Of every launch, beside all that."]
    clusters: Annotated[Counts, Unit.CLUSTERS, "On the chip at once, by blocks an SM (1, 2) and by size (2 to 8)."]


@dataclass(frozen=True)
class HaloFit:
    """The sm_90a kernel that reads each window of pixels once (``solvers/cuda/halo/tile.py``)."""

    clock: Annotated[float, Unit.HERTZ, "The clock under load."]
    macs: Annotated[float, R, "Multiply-adds that an SM starts."]
    shared: Annotated[float, R, "Bytes of shared memory."]
    l2: Annotated[float, R, "Bytes from L2."]
    step: Annotated[float, C, "Lost at each tap of a block of channels."]
    latency: Annotated[float, C, "From asking for a filter's tap, which lies in L2, to its use."]
    partial: Annotated[Pair, C, "Of a row of pixels, and of a filter, that reaches beyond the channels."]
    window: Annotated[float, C, "From asking for a window, which lies in L2, to its first bytes."]
    epilogue: Annotated[float, C, "Of a tile's results, beside their stores."]
    stored: Annotated[float, R, "Results stored."]
    hidden: Annotated[float, SHARE, "Of an epilogue, what shows beside another tile's products."]
    start: Annotated[float, C, "Before the first product and after the last result."]
    pingpong_alone: Annotated[float, SHARE, "Of the products, what pingpong costs blocks of one tile."]
    few_channels: Annotated[float, SHARE, "Of the cycles with few channels on either side, beside their padding."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    overlap: Annotated[float, SHARE, "What the lesser of computing and moving adds to the greater."]


@dataclass(frozen=True)
class HaloWrwFit:
    """The sm_90a backward weights that read each window once (``solvers/cuda/halo_wrw/tile.py``)."""

    clock: Annotated[float, Unit.HERTZ, "The clock under load."]
    shared: Annotated[float, R, "Bytes of shared memory."]
    l2: Annotated[float, R, "Bytes from L2."]
    box: Annotated[float, C, "Of a copy, however small."]
    latency: Annotated[float, C, "From asking for a stage to its first bytes."]
    start: Annotated[float, C, "Before the first product."]
    first: Annotated[float, R, "Bytes of the first copy."]
    scattered: Annotated[float, R, "Groups of four sums stored as results."]
    stored: Annotated[float, R, "Groups of four sums stored as partial sums."]
    second_kernel: Annotated[float, SECONDS, "Of the second kernel."]
    partial_bytes: Annotated[float, RATE, "Partial sums."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    overlap: Annotated[float, SHARE, "What the lesser of computing and moving adds to the greater."]


@dataclass(frozen=True)
class MmaFit:
    """The portable kernel of dense problems (``solvers/cuda/mma/cost.py``)."""

    clock: Annotated[float, SHARE, "Of the boost clock, what the card keeps under load."]
    shared: Annotated[float, R, "Bytes of shared memory."]
    l2: Annotated[float, R, "Bytes from L2."]
    mma: Annotated[float, SHARE, "Of the tensor cores' peak, which newer archs reach with other instructions only."]
    exact: Annotated[float, SHARE, "Of the fp32 peak."]
    step: Annotated[float, C, "That a step of the ring costs beside its work."]
    start: Annotated[float, C, "Of launch, tables and cold loads."]
    gather: Annotated[float, SHARE, "Of a step of a matrix product, what one of a convolution costs."]
    latency: Annotated[float, C, "Until the bytes of a stage are there."]
    latency_in_order: Annotated[float, C, "The same for loads without asynchronous copies, which wait in order."]
    scattered_load: Annotated[float, C, "Of an element that comes from a sector of its own."]
    narrow_load: Annotated[float, C, "Of a load of fewer than 16 bytes: lanes that load one part leave gaps."]
    held_load: Annotated[float, C, "Of a load that passes through registers."]
    held_warps: Annotated[float, SHARE, "Warps that hide the wait of such a load."]
    epilogue: Annotated[float, C, "Of a tile's results, beside their stores."]
    tile: Annotated[float, C, "Of a convolution's tile beside its steps: taps, places of pixels, the first loads."]
    result_gemm: Annotated[float, C, "Of a result of a matrix product, beside its store: not hidden."]
    result_conv: Annotated[float, C, "Of a result of a convolution, beside its store: not hidden."]
    stored_wide: Annotated[float, R, "Results stored several at once."]
    stored: Annotated[float, R, "Results stored one by one, neighbours together."]
    scattered_store: Annotated[float, R, "Results stored each into a sector of its own."]
    load_slots: Annotated[float, SHARE, "Issue slots of a copy instruction with its address."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    second_kernel: Annotated[float, SECONDS, "Of one more launch."]
    partial_bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what partial sums reach."]
    partial: Annotated[float, SECONDS, "Of each part that the second kernel adds."]


@dataclass(frozen=True)
class FfmaFit:
    """The exact fp32 kernel of matrix products (``solvers/cuda/ffma/cost.py``)."""

    clock: Annotated[float, SHARE, "Of the boost clock, what the card keeps under load."]
    fetch: Annotated[float, C, "Issue slots of a 16-byte load of a fragment."]
    copy: Annotated[float, C, "Issue slots of a copy instruction with its address."]
    step: Annotated[float, C, "Issue slots of a warp's step beside that, with its barrier."]
    alone: Annotated[float, SHARE, "What a warp alone on its part of an SM adds to its time: waits that none hides."]
    fed: Annotated[float, SHARE, "The same, where a warpgroup of its own copies."]
    passes: Annotated[float, C, "Of shared memory, of a warp's 16-byte load."]
    copy_passes: Annotated[float, C, "Of shared memory and the L1 cache, of a warp's copy instruction."]
    l2: Annotated[float, R, "Bytes from L2."]
    overlap: Annotated[float, Unit.EXPONENT, "How far issuing, shared memory and L2 overlap."]
    latency: Annotated[float, C, "Until the bytes of a stage are there."]
    start: Annotated[float, C, "Of launch and cold loads."]
    tile: Annotated[float, C, "Of a tile beside its steps and stores: the first loads, the last waits."]
    stored: Annotated[float, R, "Results stored."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    second_kernel: Annotated[float, SECONDS, "Of one more launch."]
    partial_bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what partial sums reach."]


@dataclass(frozen=True)
class ThinFit:
    """The kernel of few channels on both sides (``solvers/cuda/thin/cost.py``). Pairs: for rows, for weights."""

    bandwidth: Annotated[Pair, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    start: Annotated[Pair, SECONDS, "Of the launches with their first rows, and of the sum of the blocks' sums."]
    norm: Annotated[Pair, Unit.EXPONENT, "How far moving, computing and waiting overlap."]
    rows_busy: Annotated[Pair, C, "Of 16 rows, an SM's units: of a product along k, of 8 columns."]
    rows_wait: Annotated[Pair, C, "The same, what a warp waits itself."]
    rows_fetch: Annotated[float, C, "Of a product whose part of the filter is fetched."]
    filter: Annotated[float, C, "Of a part of the filter that a thread brings, beyond those of 256 threads."]
    weights_busy: Annotated[Pair, C, "Of a load and of a product of weights, an SM's units."]
    weights_wait: Annotated[Pair, C, "The same, what a warp waits itself."]
    slab_busy: Annotated[Pair, C, "Of a slab, an SM's units."]
    slab_wait: Annotated[Pair, C, "Of a slab, what a warp waits itself."]
    partial_bytes: Annotated[float, RATE, "Partial sums."]


@dataclass(frozen=True)
class WideThinFit:
    """Products with few channels whose filter warpgroups multiply, of rows alone (``solvers/cuda/thin/wide.py``)."""

    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    start: Annotated[float, SECONDS, "Of the launch with its first rows."]
    norm: Annotated[float, Unit.EXPONENT, "How far moving, computing and waiting overlap."]
    turn: Annotated[float, C, "An SM's units: of a turn of shared memory."]
    product: Annotated[float, C, "Of 16 rows, of a product of 8 columns along k."]
    column: Annotated[float, C, "Of 16 rows, of the results of 8 columns."]
    slab: Annotated[float, C, "Of a slab."]
    wait: Annotated[Pair, C, "Of 16 rows, what a warp waits itself: of a product along k, of 8 columns."]
    wait_slab: Annotated[float, C, "Of a slab."]
    filter: Annotated[float, C, "Of an element of the filter that a thread brings."]


@dataclass(frozen=True)
class FewFit:
    """Products with very few channels on both sides, by threads (``solvers/cuda/thin/few.py``)."""

    start: Annotated[float, SECONDS, "Of the launch with its first rows."]
    under_way: Annotated[float, Unit.BYTES, "Rows that an SM must have under way for the memory's bandwidth."]
    apart: Annotated[float, SHARE, "Of the time to store, where a warp's store leaves sectors half full."]
    crowded: Annotated[float, Unit.EXPONENT, "How that grows with the threads of an SM."]
    unequal: Annotated[float, Unit.EXPONENT, "How the time to move grows with what the last turn leaves idle."]
    issue: Annotated[float, SHARE, "Of the issue slots, what the kernel uses."]
    wave: Annotated[float, SECONDS, "Of blocks that begin when others have ended."]


@dataclass(frozen=True)
class PhasesFit:
    """Phases or taps as columns (``solvers/cuda/phases/cost.py``), by warps or by warpgroups."""

    clock: Annotated[float, SHARE, "Of the boost clock, what the card keeps under load."]
    product: Annotated[
        float, C, "An SM's tensor cores, of 16 rows by 8 columns by 16; of warpgroups, the least of 64 rows."
    ]
    shared: Annotated[float, R, "Bytes of shared memory."]
    load: Annotated[float, SHARE, "Issue slots of a copy of up to 16 bytes of a lane, with its address."]
    store: Annotated[float, SHARE, "Issue slots of a store of results, with its address."]
    row: Annotated[float, SHARE, "Stores of a lane that a row of results costs which a bulk copy stores."]
    sum: Annotated[float, SHARE, "Issue slots of a product that is added in shared memory."]
    issue: Annotated[float, SHARE, "Issue slots of a product, and of a load of an operand's tile."]
    turn: Annotated[float, C, "That a block waits at each turn: results, barriers."]
    chunk: Annotated[float, C, "That it waits for each block of channels."]
    step: Annotated[float, C, "That a warp waits at each step of 16 products."]
    own: Annotated[float, C, "That a warp waits for one of its own products."]
    moved: Annotated[float, C, "That a warp waits for a load or a store of its own."]
    line: Annotated[float, C, "That a warp waits for each row of results that it stores."]
    start: Annotated[float, C, "Of launch and cold loads."]
    filter: Annotated[float, R, "Bytes of the filter that a block brings before it begins."]
    l2: Annotated[float, RATE, "Bytes through the L2 cache."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    latency: Annotated[float, SECONDS, "That is not hidden of memory."]
    copied: Annotated[float, SECONDS, "Of the launch that copies odd channels to whole pieces, beside its bytes."]
    pair: Annotated[float, SHARE, "Of the seconds of a block alone on its SM, what a ring of two stages adds."]
    overlap: Annotated[Pair, Unit.EXPONENT, "How far units and waits, and then computing and moving, overlap."]


@dataclass(frozen=True)
class SlicesFit:
    """Few results by warpgroups that go through slices (``solvers/cuda/slices/cost.py``)."""

    clock: Annotated[float, SHARE, "Of the boost clock, what the card keeps under load."]
    product: Annotated[float, C, "The least of a product of 64 rows."]
    shared: Annotated[float, R, "Bytes of shared memory that products read."]
    load: Annotated[float, C, "An SM's units: of a copy of up to 16 bytes to shared memory."]
    line: Annotated[float, C, "That a warpgroup waits for the rows of a line, at each step of 16 products."]
    chunk: Annotated[float, C, "That a block waits for each block of channels."]
    slice: Annotated[float, C, "That it waits for each slice: results, barriers."]
    overlap: Annotated[float, Unit.EXPONENT, "How far units and waits overlap."]
    pair: Annotated[float, SHARE, "Of the cycles of a block alone on its SM, what a ring of two stages adds."]
    start: Annotated[float, C, "Of launch and cold loads."]
    filter: Annotated[float, R, "Bytes of the filter that a block brings before it begins."]
    l2: Annotated[float, RATE, "Bytes through the L2 cache."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    latency: Annotated[float, SECONDS, "That is not hidden."]


@dataclass(frozen=True)
class DepthwiseFit:
    """Depthwise convolution (``solvers/cuda/depthwise/cost.py``)."""

    issue: Annotated[float, C, "Of a multiply-add, of the quarter of an SM that starts it."]
    load: Annotated[float, C, "Of a load or store, beside its elements."]
    l1: Annotated[float, R, "Bytes from the L1 cache."]
    wait: Annotated[float, C, "Of waiting for a row of inputs."]
    thread: Annotated[float, C, "Of a warp's first and last instructions."]
    block: Annotated[float, C, "Of waiting for the filter."]
    tap: Annotated[float, C, "Of waiting for an element of the filter that a thread brings to shared memory."]
    weights: Annotated[float, SHARE, "Of these cycles, what backward weights takes."]
    plane: Annotated[float, SHARE, "Of a tile's cycles, what each plane of the filter beyond the first adds."]
    several: Annotated[Pair, SHARE, "Of the time, with several results a channel: forward, weights."]
    many_taps: Annotated[float, SHARE, "Of these cycles in fp32, what filters of over 128 taps in a plane take."]
    norm: Annotated[float, Unit.EXPONENT, "By which what overlaps adds up."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    start: Annotated[float, SECONDS, "Of the launch."]
    second_kernel: Annotated[float, SECONDS, "Of one more launch."]


@dataclass(frozen=True)
class DepthwiseMmaFit:
    """Depthwise convolution on tensor cores (``solvers/cuda/depthwise_mma/cost.py``)."""

    product: Annotated[float, C, "Of a product, of the quarter of an SM that starts it."]
    operand: Annotated[float, C, "Of an operand from shared memory."]
    copy: Annotated[float, C, "Of a copy of a warp to shared memory."]
    result: Annotated[float, C, "Of a product's results, on their way to memory."]
    group: Annotated[float, C, "Of a row of results, whatever its length."]
    stage: Annotated[float, C, "Of waiting for a stage."]
    block: Annotated[float, C, "Of waiting for the first stages of a block."]
    tap: Annotated[float, C, "Of waiting for an operand of the filter."]
    table: Annotated[float, SHARE, "Of a product's cycles, what those of a filter in shared memory take."]
    norm: Annotated[float, Unit.EXPONENT, "By which what overlaps adds up."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    l2: Annotated[float, SHARE, "Of the memory's bandwidth, what rows that are read again reach."]
    split: Annotated[float, SHARE, "Of the bytes, what is read once more where blocks take parts of a burst."]
    kept: Annotated[float, SHARE, "Of L2, what may be on its way before those parts are lost."]
    start: Annotated[float, SECONDS, "Of the launch."]
    second_kernel: Annotated[float, SECONDS, "Of one more launch."]


@dataclass(frozen=True)
class NarrowFit:
    """Convolutions of narrow groups (``solvers/cuda/narrow_groups/cost.py``). Pairs: of pixels, of weights."""

    clock: Annotated[float, SHARE, "Of the boost clock, what the card keeps under load."]
    read: Annotated[float, C, "Of an operand of 16 x 16 that comes from shared memory."]
    product: Annotated[float, C, "Of a product of 16 x 8."]
    exact: Annotated[float, SHARE, "Of the fp32 peak."]
    issue: Annotated[float, SHARE, "Issue slots of a copy or a store of 16 bytes with its address."]
    tile: Annotated[Pair, C, "Of a tile, over the square root of the blocks that share an SM."]
    wait: Annotated[float, C, "Until a window is there, over the blocks and the windows ahead."]
    start: Annotated[float, C, "Of launch and cold loads."]
    filter: Annotated[float, C, "Of a thread's part of the filter for a step of 16 and 8 results."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    overlap: Annotated[float, SHARE, "What the lesser of computing and moving adds to the greater."]
    second_kernel: Annotated[float, SECONDS, "Of one more launch."]
    partial_bytes: Annotated[float, RATE, "Partial sums."]


@dataclass(frozen=True)
class RowGroupsFit:
    """Groups of rows on sm_90a (``solvers/cuda/row_groups/cost.py``)."""

    clock: Annotated[float, Unit.HERTZ, "The clock under load."]
    macs: Annotated[float, R, "Multiply-adds that an SM starts."]
    l2: Annotated[float, R, "Bytes from L2."]
    step: Annotated[float, C, "Of a step of 64 of k, beside its products."]
    step_alone: Annotated[float, C, "Of a step where a warpgroup has the tile alone."]
    epilogue: Annotated[float, C, "Of a tile's results, beside those stored; hidden where warpgroups take turns."]
    stored: Annotated[float, R, "Results that leave an SM."]
    start: Annotated[float, C, "Of launch, counting and cold loads."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    overlap: Annotated[float, SHARE, "What the lesser of computing and moving adds to the greater."]


@dataclass(frozen=True)
class FirstFit:
    """Few input channels (``solvers/cuda/first/cost.py``). Pairs of blocks and waits: forward, backward weights."""

    clock: Annotated[float, SHARE, "Of the boost clock, what the card keeps under load."]
    wait: Annotated[Pair, C, "Of a tile, that other blocks of the SM hide."]
    step_wait: Annotated[float, C, "Of a step of a tile, that other blocks hide."]
    column: Annotated[float, C, "Of 128 pixels by a column."]
    product: Annotated[Pair, C, "Of 128 pixels by a column and a step of 16: by wgmma, by mma.sync."]
    unit: Annotated[float, C, "Of a unit of x on its way to shared memory."]
    element: Annotated[float, C, "Of each load that it takes."]
    store: Annotated[float, C, "Of each store of a warp beyond those of 16 bytes."]
    filter: Annotated[float, C, "Of a part of the filter that a thread brings."]
    block: Annotated[Pair, C, "Of a block, beside its tiles."]
    sum: Annotated[float, C, "Of backward weights, of a product of 16 x 8 x 16."]
    alone: Annotated[float, SHARE, "What a warp alone on an SM adds to its products."]
    ragged: Annotated[float, SHARE, "Of products, where the units of a warp end early."]
    shared: Annotated[float, C, "Of 128 bytes of shared memory."]
    gradient: Annotated[float, R, "Bytes of dy."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    overlap: Annotated[float, SHARE, "What the lesser of computing and moving adds to the greater."]
    start: Annotated[float, SECONDS, "Of the launch."]
    second_kernel: Annotated[float, SECONDS, "Of one more launch."]
    partial_bytes: Annotated[float, RATE, "Partial sums written and read."]


@dataclass(frozen=True)
class FirstRowsFit:
    """Few input channels by warpgroups, rows as they lie (``solvers/cuda/first_rows/cost.py``)."""

    clock: Annotated[float, SHARE, "Of the boost clock, what the card keeps under load."]
    column: Annotated[float, C, "An SM's units: of 16 pixels by 8 columns of results."]
    product: Annotated[float, C, "Of 16 pixels by 8 columns and a step of 16."]
    gather: Annotated[float, C, "Of the words of 16 pixels and a step."]
    store: Annotated[float, C, "Of each store of a warp beyond those of 16 bytes."]
    unit: Annotated[float, C, "Of 16 bytes of x or of the filter on their way to shared memory."]
    wait: Annotated[float, C, "That a block waits: for its first bytes, until it is replaced."]
    task_wait: Annotated[float, C, "That a warp waits in its share of a tile: results, barriers."]
    step_wait: Annotated[float, C, "That it waits for a step of 16 pixels."]
    column_wait: Annotated[float, C, "That it waits for 16 pixels by 8 columns of results."]
    norm: Annotated[float, Unit.EXPONENT, "How far units and waits overlap."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    overlap: Annotated[float, SHARE, "What the lesser of computing and moving adds to the greater."]
    start: Annotated[float, SECONDS, "Of the launch."]


@dataclass(frozen=True)
class FirstRowsWrwFit:
    """Backward weights of the same, by warps (``solvers/cuda/first_rows/cost.py``)."""

    clock: Annotated[float, SHARE, "Of the boost clock, what the card keeps under load."]
    product: Annotated[float, C, "An SM's units: of a product of 16 x 8 x 16."]
    shared: Annotated[float, C, "Of 128 bytes of shared memory."]
    unit: Annotated[float, C, "Of 16 bytes of x or dy on their way to shared memory."]
    wait: Annotated[float, C, "That a block waits for a tile: its bytes, barriers."]
    step_wait: Annotated[float, C, "That a warp waits at a step of 16 pixels; of each matrix of words a quarter of it."]
    product_wait: Annotated[float, C, "That it waits for one of its own products."]
    ragged: Annotated[float, SHARE, "Of products and waits, where tiles reach beyond the image."]
    norm: Annotated[float, Unit.EXPONENT, "How far units and waits overlap."]
    turn: Annotated[float, C, "Between warps that add their sums one after the other."]
    add: Annotated[float, C, "That a warp waits for what half a matrix's sums are added to."]
    bank: Annotated[float, C, "Of a turn of shared memory where sums are added."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    overlap: Annotated[float, SHARE, "What the lesser of computing and moving adds to the greater."]
    start: Annotated[float, SECONDS, "Of both launches."]
    part: Annotated[float, SECONDS, "Of each block's sums that the second kernel adds."]
    partial_bytes: Annotated[float, RATE, "Partial sums written and read."]


@dataclass(frozen=True)
class WideRowsFit:
    """Backward weights of the same by warpgroups (``solvers/cuda/first_rows/cost.py``)."""

    clock: Annotated[float, SHARE, "Of the boost clock, what the card keeps under load."]
    product: Annotated[float, C, "An SM's tensor cores: of a product of 64 x 8 x 16."]
    shared: Annotated[float, C, "Of 128 bytes of shared memory that products and lanes read."]
    wait: Annotated[float, C, "That a block waits for a tile: its bytes, barriers."]
    turn_wait: Annotated[float, C, "That a warpgroup waits at a turn, some steps of 16 pixels."]
    matrix_wait: Annotated[float, C, "That it waits at each step for words of each of its matrices."]
    product_wait: Annotated[float, C, "That it waits for one of its own products of 64 x 8 x 16."]
    ragged: Annotated[float, SHARE, "Of products and waits, where tiles reach beyond the image."]
    norm: Annotated[float, Unit.EXPONENT, "How far units and waits overlap."]
    turn: Annotated[float, C, "Between warpgroups that add their sums one after the other."]
    add: Annotated[float, C, "Of eight channels of a matrix's sums that are added."]
    write: Annotated[float, C, "Of 128 bytes of sums that a block writes."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    overlap: Annotated[float, SHARE, "What the lesser of computing and moving adds to the greater."]
    start: Annotated[float, SECONDS, "Of both launches."]
    part: Annotated[float, SECONDS, "Of each block's sums that the second kernel adds."]
    partial_bytes: Annotated[float, RATE, "Partial sums written and read."]


@dataclass(frozen=True)
class SumsFit:
    """Sums of channels (``solvers/cuda/channel_sums/cost.py``)."""

    load: Annotated[float, C, "Between the loads of a thread, a few of which are under way at once."]
    wave: Annotated[float, C, "Until a block takes the place of one that ended."]
    part: Annotated[float, C, "Of each part that a thread of the second kernel adds."]
    bandwidth: Annotated[float, SHARE, "Of the memory's bandwidth, what the kernel reaches."]
    norm: Annotated[float, Unit.EXPONENT, "Of the norm that joins what threads wait for and the time of memory."]
    start: Annotated[float, SECONDS, "Of the launch, and until the first loads arrive."]
    second_kernel: Annotated[float, SECONDS, "Of one more launch."]


@dataclass(frozen=True)
class ReferenceFit:
    """The plain reference (``solvers/cuda/reference``). Pairs: of a tile alone, of each of its products' sums."""

    fp64: Annotated[float, SHARE, "Of the fp64 peak, at most."]
    square_tile: Annotated[Pair, C, "Of a tile of 64 x 64 results."]
    narrow_tile: Annotated[Pair, C, "Of a tile of 8 columns."]
    start: Annotated[float, SECONDS, "Of the launch."]


@dataclass(frozen=True)
class CopyFit:
    """Layout copies before and after a kernel (``solvers/cuda/common/relayout.py``)."""

    bandwidth: Annotated[Shares, SHARE, "Of the memory's bandwidth, by the bytes that move as one: 16, 8, 4, 2, 1."]
    start: Annotated[float, SECONDS, "Of a copy, beside its bytes."]


@dataclass(frozen=True)
class Fit:
    """The constants measured on ``card``, which has this boost clock and this bandwidth; a part for each kernel."""

    card: str
    arch: str
    cores: int
    clock_hz: float
    bytes_per_s: float
    tile: TileFit
    halo: HaloFit
    halo_wrw: HaloWrwFit
    mma: MmaFit
    ffma: FfmaFit
    thin: ThinFit
    wide_thin: WideThinFit
    few: FewFit
    phases: PhasesFit
    wide_phases: PhasesFit
    slices: SlicesFit
    depthwise: DepthwiseFit
    depthwise_mma: DepthwiseMmaFit
    narrow: NarrowFit
    row_groups: RowGroupsFit
    first: FirstFit
    first_rows: FirstRowsFit
    first_rows_wrw: FirstRowsWrwFit
    wide_rows_wrw: WideRowsFit
    sums: SumsFit
    reference: ReferenceFit
    copy: CopyFit
