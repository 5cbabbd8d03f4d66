"""The lines that consumers of MIOpenDriver match."""

from __future__ import annotations

import math
import re

from tilesmith.problems.driver import lines as out
from tilesmith.problems.driver import parse_command


def signature(text: str):
    return parse_command(text).signatures[0][1]


def test_consumers_match():
    line = out.algorithm_line("fwd", 5, 13, "c_dense")
    assert re.match(r"^MIOpen .* Algorithm: (\d+), Solution: (\d+)/(\w+)", line).groups() == ("5", "13", "c_dense")
    assert line == "MIOpen Forward Conv. Algorithm: 5, Solution: 13/c_dense"
    line = out.time_line("bwd", 1.25, "GPU")
    assert re.match(r"^GPU Kernel Time .* Elapsed: (\d+\.\d+) ms", line)[1] == "1.250000"
    assert out.time_line("wrw", 0.1) == "CPU Kernel Time Backward Weights Conv. Elapsed: 0.100000 ms (average)"
    assert out.wall_line("fwd", 2.5).startswith("Wall-clock Time Forward Conv. Elapsed: 2.5 ms")
    assert out.command_line("conv -n 1") == "MIOpenDriver conv -n 1"


def test_verify():
    assert out.verify_line("fwd", 1e-7, 1.5e-6) == "Forward Convolution Verifies OK on CPU reference (1e-07 < 1.5e-06)"
    assert out.verify_line("bwd", 3.0, 1.5e-6) == "Backward Convolution Data FAILED: 3 > 1.5e-06"
    assert "FAILED" in out.verify_line("wrw", math.nan, 1.0)
    assert out.verify_line("wrw", 0.5, 1.0).startswith("Backward Convolution Weights Verifies OK")


def test_stats():
    head, row = out.stats_lines(signature("conv -n 2 -c 4 -H 8 -W 9 -k 6 -y 3 -x 2 -u 2 -v 1 -g 2 -F 1"), 0.5)
    assert head == "stats: name, n, c, ho, wo, y, x, k, flopCnt, bytesRead, bytesWritten, GFLOPs, GB/s, timeMs"
    names = [name.strip() for name in head.removeprefix("stats: ").split(",")]
    values = dict(zip(names, [v.strip() for v in row.removeprefix("stats: ").split(",")], strict=True))
    assert values["name"] == "fwd-conv3x2u2"
    assert (values["ho"], values["wo"], values["y"], values["x"]) == ("3", "8", "3", "2")
    assert int(values["flopCnt"]) == 2 * (2 * 6 * 3 * 8) * (2 * 3 * 2)
    assert int(values["bytesRead"]) == 4 * (2 * 4 * 8 * 9 + 6 * 2 * 3 * 2)
    assert int(values["bytesWritten"]) == 4 * 2 * 6 * 3 * 8
    assert values["timeMs"] == "0.500000"


def test_stats_of_other_directions():
    text = "conv -n 1 -c 4 -k 6 -_ 3 -! 4 -H 5 -W 6 -@ 2 -y 3 -x 3 -F {}"
    for mask, name, written in ((1, "fwd-conv2x3x3u1", 6 * 3 * 3 * 4), (2, "bwdd-conv2x3x3u1", 4 * 4 * 5 * 6),
                                (4, "bwdw-conv2x3x3u1", 6 * 4 * 18)):  # fmt: skip
        head, row = out.stats_lines(signature(text.format(mask)), 1.0)
        assert "do, ho, wo, z, y, x, k" in head
        assert row.startswith(f"stats: {name}, 1, 4, 3, 3, 4, 2, 3, 3, 6,  {2 * 6 * 3 * 3 * 4 * 4 * 18}, ")
        assert row.split(", ")[-4] == str(4 * written)
        assert head.count(",") == row.count(",")
    # Transposed: 2 operations for each pair of an input pixel and a tap, not stride^2 times as many.
    _, row = out.stats_lines(signature("conv -m trans -n 1 -c 2 -k 3 -H 4 -W 4 -y 2 -x 2 -u 2 -v 2 -F 1"), 1.0)
    assert f"  {2 * 16 * 2 * 3 * 4}, " in row
    assert out.stats_lines(signature("conv -F 8"), 1.0) == ()
    head, row = out.stats_lines(signature("gemm -m 2 -n 3 -k 4"), 1.0)
    assert head.count(",") == row.count(",")
