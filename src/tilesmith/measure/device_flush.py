"""Empties the L2 cache of a device before a sample: a kernel that reads twice the cache and then waits.

It reads and does not write, because lines that must go back to memory would slow what comes next. It waits, because the
host needs time to queue what is timed: a device that is ahead of its host would stand idle between two events.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tilesmith.runtime.device import Device, DeviceMemory, Kernel, Stream

WAIT_CYCLES: Final = 200_000  # about 100 us
_BLOCK: Final = 256
_SYMBOL: Final = "ts_flush"

# Written by hand, so that measuring needs no compiler; the driver translates it (3 ms).
_PTX: Final = b"""
.version 7.0
.target sm_80
.address_size 64

.visible .entry ts_flush(.param .u64 memory, .param .u64 vectors, .param .u64 cycles)
{
  .reg .pred %more, %wait, %odd;
  .reg .b32 %a, %b, %c, %d, %sum, %block, %blocks, %thread, %threads;
  .reg .b64 %begin, %now, %spent, %cycles, %at, %memory, %vectors, %step, %place;

  mov.u64 %begin, %clock64;
  ld.param.u64 %memory, [memory];
  ld.param.u64 %vectors, [vectors];
  ld.param.u64 %cycles, [cycles];
  cvta.to.global.u64 %memory, %memory;
  mov.u32 %block, %ctaid.x;
  mov.u32 %blocks, %nctaid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %threads, %ntid.x;
  mad.wide.u32 %at, %block, %threads, 0;
  cvt.u64.u32 %place, %thread;
  add.u64 %at, %at, %place;
  mul.wide.u32 %step, %blocks, %threads;
  mov.u32 %sum, 0;
READ:
  setp.ge.u64 %more, %at, %vectors;
  @%more bra WAIT;
  shl.b64 %place, %at, 4;
  add.u64 %place, %memory, %place;
  ld.global.cg.v4.u32 {%a, %b, %c, %d}, [%place];
  or.b32 %a, %a, %b;
  or.b32 %c, %c, %d;
  or.b32 %a, %a, %c;
  or.b32 %sum, %sum, %a;
  add.u64 %at, %at, %step;
  bra READ;
WAIT:
  mov.u64 %now, %clock64;
  sub.u64 %spent, %now, %begin;
  setp.lt.u64 %wait, %spent, %cycles;
  @%wait bra WAIT;
  setp.ne.u32 %odd, %sum, 0;
  @%odd st.global.u32 [%memory], %sum;
  ret;
}
"""


class Flush:
    """Memory of twice the L2 cache; reading it drops everything else from the cache."""

    def __init__(self, place: Device, l2_bytes: int, blocks: int) -> None:
        self._memory = DeviceMemory(place, max(2 * l2_bytes, 32 << 20))
        self._memory.fill(0)
        place.synchronize()
        self._kernel, self._blocks = _kernel(place), 4 * blocks

    def queue(self, stream: Stream, wait_cycles: int) -> None:
        memory = self._memory
        self._kernel.launch(stream, self._blocks, _BLOCK, memory.address, memory.nbytes // 16, wait_cycles)


@lru_cache(maxsize=64)
def _kernel(place: Device) -> Kernel:
    return Kernel(_PTX, _SYMBOL, place)
