"""The names that axes had before they had words: configs of databases, specs and results are read with them for ever.

Nothing here is ever removed. An axis that is renamed gets a line; its old name is never given to another axis of the
same solver.
"""

from __future__ import annotations

from tilesmith.solvers.solver import Config, parse_config

_WGMMA = {
    "wgs": "warpgroups", "mi": "products_m", "bn": "block_n", "bk": "block_k", "pp": "pingpong", "split": "cluster_k",
    "slices": "split_k", "group": "group_m", "inner": "taps_inner", "swap": "swap_mn", "per_sm": "blocks_per_sm",
    "mix": "mix_layers", "bufs": "store_buffers", "slab": "slab_n", "cast": "cluster_m",
}  # fmt: skip
_MMA = {
    "bm": "block_m", "bn": "block_n", "bk": "block_k", "wm": "warps_m", "wn": "warps_n", "split": "split_k",
    "walk": "group_m",
}  # fmt: skip
_GROUPED = {
    "rows": "tile_h", "cols": "tile_w", "nv": "vectors", "chunk": "item_blocks", "stream": "stream_stores",
    "ahead": "prefetch",
}  # fmt: skip

OLD_NAMES: dict[str, dict[str, str]] = {
    "wgmma_gemm": _WGMMA,
    "wgmma_conv": _WGMMA,
    "wgmma_halo": {
        "wgs": "warpgroups", "pp": "pingpong", "th": "tile_h", "tw": "tile_w",
        "bk": "block_k",
    },
    "wgmma_halo_wrw": {
        "th": "tile_h", "tw": "tile_w", "g": "taps", "cw": "block_c", "kw": "product_k", "wk": "warpgroups_k",
        "wl": "warpgroups_lines", "li": "lines", "slices": "split_n",
    },
    "mma_dense": _MMA,
    "ffma_dense": _MMA,
    "mma_thin": {"rows": "stage_rows", "blocks": "blocks_per_sm"},
    "cuda_depthwise": {
        "vec": "channels_per_thread", "th": "rows_per_thread", "tw": "columns_per_thread", "ahead": "rows_ahead",
        "rows": "filter_rows", "per_sm": "blocks_per_sm",
    },
    "c_dense": {
        "mh": "tile_h", "mw": "tile_w", "nv": "vectors", "rows": "item_rows", "cols": "item_columns",
        "kg": "channel_groups", "kout": "groups_outer", "cb": "block_c", "cpad": "strip_pad", "pf": "prefetch",
    },
    "c_grouped": _GROUPED,
    "c_depthwise": _GROUPED,
    "c_wrw": {
        "mr": "tile_m", "nv": "vectors", "px": "strip_pixels", "parts": "split_m", "splits": "split_n",
        "direct": "in_place",
    },
    "c_wrw_grouped": {"cols": "tile_w", "chunk": "item_blocks", "splits": "split_n"},
    "c_bgrad": {"nv": "vectors", "splits": "split_n"},
}  # fmt: skip


def read_config(solver: str, text: str) -> Config:
    """The config of ``solver`` (``solver@form``, also with ``_nhwc``) that ``text`` names, by old names or by today's.

    Raises ``ValueError`` for text that is not ``NAME=INTEGER ...``.
    """
    config, renamed = parse_config(text), _renamed(solver)
    return Config(tuple((renamed.get(name, name), value) for name, value in config.values)) if renamed else config


def has_old_names(solver: str, text: str) -> bool:
    """Whether ``text``, a config of ``solver``, holds a name of former days."""
    return read_config(solver, text) != parse_config(text)


def same_config(solver: str, one: str, other: str) -> bool:
    """Whether two texts name the same config of ``solver``."""
    try:
        return one == other or read_config(solver, one) == read_config(solver, other)
    except ValueError:  # of another program
        return False


def _renamed(solver: str) -> dict[str, str]:
    return OLD_NAMES.get(solver.partition("@")[0].removesuffix("_nhwc"), {})
