"""One call of a kernel under compute-sanitizer: its tensors in allocations that end with their last 16 bytes.

Between guard bands, a read behind a tensor would be a read of memory that exists. Kernels may read the 16 bytes at a
multiple of 16 that hold a tensor's last element, as every allocator gives whole ones, and nothing behind them.

What memset has filled counts as initialised. So nothing is filled for initcheck but the operands, and a result that the
kernel reads or leaves gaps in. NOTE: initcheck does not see stores by bulk copies, through tensor maps or without them:
it called results uninitialised whose numbers were right (wgmma_row_groups and wgmma_thin, H200, CUDA 13.0). So all
memory of plans with such stores is filled.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilesmith.measure.accuracy import Accuracy, check
from tilesmith.measure.arrays import GuardedArray, guarded_operands, guarded_result
from tilesmith.measure.device_arrays import DevicePlan
from tilesmith.measure.oracle import oracle
from tilesmith.plan.slots import arguments
from tilesmith.problems.dtypes import dtype
from tilesmith.problems.gemm import GemmSignature
from tilesmith.problems.rewrite import Signature
from tilesmith.runtime.device import DeviceMemory, Stream, device
from tilesmith.runtime.executable import Executable
from tilesmith.toolchain.elf import CUDA, code_of, machine_of

PIECE = 16  # bytes
_INSTRUCTION = 16  # bytes
_COMMIT = 0x9B7  # UTMACMDFLUSH: cp.async.bulk.commit_group (sm_90a; nvdisasm 13.0)


def one_call(signature: Signature, values: tuple[np.ndarray, ...], executable: Executable, fresh: bool) -> Accuracy:
    """The numbers of a call; with ``fresh``, result, workspace and packed filter are as the allocator gives them."""
    place = device(0)
    stream = Stream(place)
    operands, result = guarded_operands(signature, values), guarded_result(signature, values)
    slots = arguments(signature)
    slot = slots[-1]
    fresh = fresh and not has_bulk_stores(executable)
    memories = [DeviceMemory(place, -(-each.nbytes // PIECE) * PIECE) for each in slots]
    for memory in memories[: len(operands)]:
        memory.fill(0xFF)
    place.synchronize()
    for tensor, each, memory in zip(operands, slots, memories, strict=False):
        memory.write(_bytes(tensor, each.nbytes))
    gaps = slot.nbytes != result.array.size * dtype(slot.dtype).nbytes
    adds = isinstance(signature, GemmSignature) and signature.beta != 0
    if not fresh or gaps or adds:
        memories[-1].write(_bytes(result, slot.nbytes))
    plan = DevicePlan(executable, place, stream, [memory.address for memory in memories])
    if not fresh:
        plan.poison()
    plan.prepare()
    plan.run()
    stream.synchronize()
    memories[-1].read(_bytes(result, slot.nbytes))
    verdict = check(result.array, oracle(signature, values), signature)
    outside = result.out_of_bounds()
    return verdict if not outside else Accuracy(False, 0.0, 0.0, (), f"wrote outside the result: {outside}")


def has_bulk_stores(executable: Executable) -> bool:
    """Whether a kernel of the plan stores so: its machine code ends a group of such stores, which nothing else does."""
    return any(_COMMIT in opcodes(Path(file).read_bytes()) for file in executable.files)


def opcodes(image: bytes) -> set[int]:
    """Of a cubin's instructions; none of what is no ELF file of a GPU."""
    if (machine_of(image) or (0, 0))[1] != CUDA:
        return set()
    code = code_of(image)
    return {int.from_bytes(code[at : at + 2], "little") & 0xFFF for at in range(0, len(code), _INSTRUCTION)}


def _bytes(tensor: GuardedArray, nbytes: int) -> np.ndarray:
    """From the first byte of a tensor to its last one, gaps included: a view."""
    first = tensor.array.__array_interface__["data"][0] - tensor.memory.__array_interface__["data"][0]
    return tensor.memory[first : first + nbytes]
