"""Copies of matrices to rows of whole 16 bytes, through the emulator."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from cuda_chain import H200
from stand_in import stand_in

from tilesmith.codegen.cuda.pad_rows import Rows, pad_rows
from tilesmith.plan.records import Pointer, Space
from tilesmith.toolchain.build import build_unit

READ, WRITE = Pointer(Space.SLOT, 0), Pointer(Space.SLOT, 1)
# layers, rows, bytes of a row, bytes from row to row, bytes from layer to layer
CASES = [(1, 7, 38, 38, 0), (3, 5, 19, 23, 120), (2, 9, 402, 402, 9 * 402), (1, 1, 4101, 5000, 0), (1, 40, 64, 66, 0)]


def test_every_byte_of_both_matrices_lands_in_its_row():
    rng, emulator = np.random.default_rng(0), stand_in()
    for first, second in [*zip(CASES, (*CASES[1:], None), strict=True)]:
        given = [Rows(READ, WRITE, *case) for case in (first, second) if case]
        made, launch = pad_rows(given[0], given[1] if second else None, H200)
        held = []
        for rows in given:
            end = rows.values[2]
            source = np.zeros(end + 64, np.uint8)
            source = source[-source.ctypes.data % 16 :][:end]
            source[:] = rng.integers(1, 250, end)
            out = np.zeros(rows.layers * rows.rows * rows.pitch + 64, np.uint8)
            held.append((source, out[-out.ctypes.data % 16 :]))
        pointers = [array.ctypes.data for pair in (held[0], held[-1]) for array in pair]
        values = [p.value if not isinstance(p, Pointer) else pointers.pop(0) for p in launch.parameters]
        cells = (ctypes.c_longlong * len(values))(*values)
        parameters = (ctypes.c_void_p * len(values))(*(ctypes.addressof(cells) + 8 * i for i in range(len(values))))
        emulator.emulate(made)
        emulator.kernels[made.symbol]((ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(*launch.block), parameters)
        for rows, (source, out) in zip(given, held, strict=True):
            for layer in range(rows.layers):
                for row in range(rows.rows):
                    at = layer * rows.layer + row * rows.step
                    to = (layer * rows.rows + row) * rows.pitch
                    np.testing.assert_array_equal(out[to : to + rows.row_bytes], source[at : at + rows.row_bytes])
            assert not out[rows.layers * rows.rows * rows.pitch :].any()


def test_a_copy_too_large_for_one_launch_is_refused(tmp_path):
    with pytest.raises(ValueError, match="too large for one launch"):
        pad_rows(Rows(READ, WRITE, 1, 2**32, 16, 18, 0), None, H200)
    made, _ = pad_rows(Rows(READ, WRITE, *CASES[0]), None, H200)
    (found,) = build_unit([made], H200, tmp_path / "unit.cubin")
    assert found.spill_store_bytes == 0
