"""Constants of an Intel Xeon of the fifth generation, of whose clock another machine's neighbours take a part.

Kernels beside those of matrix tiles are ranked by the EPYC's cycles: what differs is the clock, and products of pairs
of bf16, which take longer than the conversion to fp32 and its products (measured: 6 times what the EPYC's cycles say,
where fp32 takes 2 times; 13 layers of ResNet-50 and MobileNetV3, one thread).
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.targets.fits.cpu_fit import CpuFit, TilesFit
from tilesmith.targets.fits.epyc import EPYC

_CLOCK, _DOTS = 2.7e9, 0.33
EMERALD_RAPIDS = CpuFit(
    card="emerald-rapids",
    arch="x86_64-v4-amx",
    dense=replace(EPYC.dense, clock=_CLOCK, dots=_DOTS),
    tiles=TilesFit(
        clock=_CLOCK,
        loaded=9.0,
        tile=60.0,
        out=5.0,
        long=25.0,
        item=300.0,
        copied=12.0,
        pixel=4.0,
        l2=40.0,
        l3=8.0,
        dram=4.0,
    ),
    grouped=replace(EPYC.grouped, clock=_CLOCK, dots=_DOTS),
    wrw=replace(EPYC.wrw, clock=_CLOCK, dots=_DOTS),
)
