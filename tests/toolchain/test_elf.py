"""The reader of ELF files, on cubins and on what is none."""

from __future__ import annotations

import sys

from tilesmith.plan.records import Source
from tilesmith.targets.cuda import cuda_target
from tilesmith.toolchain.build import build_unit
from tilesmith.toolchain.elf import CUDA, code_of, machine_of, sections_of


def test_a_cubin_has_the_code_of_its_kernels(tmp_path):
    text = 'extern "C" __global__ void {0}(float *y) {{ y[threadIdx.x] += 1; }}\n'
    out = tmp_path / "unit.cubin"
    build_unit(
        [Source("cuda", name, "", text.format(name)) for name in ("ts_one", "ts_two")], cuda_target("sm_90a", 132), out
    )
    image = out.read_bytes()
    assert machine_of(image) == (2, CUDA)
    code = [section for section in sections_of(image) if section.is_code]
    assert sorted(section.name for section in code) == [".text.ts_one", ".text.ts_two"]
    assert code_of(image) == b"".join(section.content for section in code)
    assert all(section.content and len(section.content) % 16 == 0 for section in code)


def test_what_is_no_elf_file_has_no_sections():
    for image in (b"", b"\x7fELF", b".version 8.0\n" * 9, b"\x7fELF\1" + bytes(60)):
        assert list(sections_of(image)) == []
        assert code_of(image) == b""
    assert machine_of(b"\x7fELF" + bytes(15)) is None


def test_a_program_of_this_machine_is_read():
    if not sys.platform.startswith("linux"):
        return
    with open("/proc/self/exe", "rb") as file:
        image = file.read()
    assert {".text", ".dynsym"} <= {section.name for section in sections_of(image)}
