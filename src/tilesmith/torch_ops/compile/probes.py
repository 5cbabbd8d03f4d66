"""Asks the C++ compiler for AVX-512's younger instructions once, in the background.

Inductor compiles, links and loads a program for each of them, one after the other, while everything waits: 2 s. PyTorch
says which of them the processor has; that the compiler knows them, one compilation of all tells.
"""

from __future__ import annotations

import logging
import shlex
import subprocess
from functools import cache
from typing import Any

import torch

from tilesmith.torch_ops.compile.builder import begin

_LIMIT_S = 60.0
_log = logging.getLogger("tilesmith.compile")


@cache
def begin_probes() -> None:
    """Begin to ask, and have Inductor take the answer; where it is no, Inductor asks as it always does."""
    try:
        _begin()
    except (ImportError, AttributeError) as error:
        _log.info("this PyTorch asks for each instruction set by itself: %s", error)


def _begin() -> None:
    from torch._inductor import cpp_builder, cpu_vec_isa

    bf16, vnni = cpu_vec_isa.VecAVX512, cpu_vec_isa.VecAVX512VNNI
    codes = bf16._avx512_bf16_code, vnni._avx512_vnni_code
    if not (torch.cpu._is_avx512_bf16_supported() and torch.cpu._is_vnni_supported()):
        return
    flags = [*vnni._arch_flags.split(), "-mavx512bf16"]
    answers: list[bool] = []
    asked = begin(lambda: answers.append(is_compiled("".join(codes), cpp_builder.get_cpp_compiler(), flags)))
    base: Any = cpu_vec_isa.VecISA
    ask = base.check_build

    def check_build(self: Any, code: str) -> bool:
        if type(self) in (bf16, vnni) and code in codes:
            asked.result()
            if answers == [True]:
                return True
        return bool(ask(self, code))

    base.check_build = check_build


def is_compiled(code: str, compiler: str, flags: list[str]) -> bool:
    """Whether the C++ compiler and its assembler take a program."""
    command = [*shlex.split(compiler), *flags, "-x", "c++", "-c", "-o", "/dev/null", "-"]
    try:
        done = subprocess.run(command, input=code.encode(), capture_output=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
