"""The words of ``tilesmith gemm tune|run|perf``: ``MNK=1024:4096:1024 nn nt bf16 t=500``.

    KEY=VALUES   letters of M, N, K, B (batch): each gets the value; several letters have the same value
    VALUES       1024 | 512,1024 | 1024:4096:1024 (first : last : step, the last included)
    nn nt tn tt  how a and b are stored: n as m x k and k x n, t transposed
    fp32 tf32 bf16 fp16 fp64 int8 fp8e4m3 fp8e5m2 (of a and b alike)
    bias residual relu silu gelu ...   parts of the epilogue
    t=N          configs of a size at most; s=SECONDS a size at most
    O=N          as the scripts of TVM have it: even our kernels, odd TVM's; from 65536 on in the foreground, below it
                 as a job in the background

A line of a list may also be a driver command (``gemm --a_h 512 ...``), which names one product.
Sizes of different keys are combined with each other, the keys first named changing slowest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.errors import CommandError
from tilesmith.problems.driver import parse_command
from tilesmith.problems.driver.flags import GEMM_BASES
from tilesmith.problems.dtypes import DTYPES
from tilesmith.problems.epilogue import ACTIVATIONS, Epilogue
from tilesmith.problems.gemm import GemmSignature

FORMS = ("nn", "nt", "tn", "tt")
FOREGROUND = 65536  # from this O on
MOST_SIZES = 10_000
_LETTERS = "MNKB"
_NUMBERS = ("t", "s", "O")
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_PARTS = ("bias", "residual", *(name for name in ACTIVATIONS if name not in ("none", "clamp", "leaky_relu")))


@dataclass(frozen=True)
class Asked:
    """The products and limits that words name.

    Args:
        problems: The products, in order; empty if no size is given.
        trials: Configs of a size at most; None: no limit.
        seconds: Time of a search at most; None: the verb's own.
        option: The number of ``O``.
    """

    problems: tuple[GemmSignature, ...]
    trials: int | None = None
    seconds: float | None = None
    option: int = FOREGROUND

    @property
    def in_background(self) -> bool:
        return self.option < FOREGROUND

    @property
    def is_of_tvm(self) -> bool:
        return self.option % 2 == 1


def read_words(words: Sequence[str]) -> Asked:
    """Read words.

    Raises:
        CommandError: A word is none of the grammar, a letter is given twice or not at all, or there are too many sizes.
        ProblemError: A size breaks a rule of ``GemmSignature``.
    """
    sizes: list[tuple[str, tuple[int, ...]]] = []
    forms: list[str] = []
    types: list[str] = []
    parts: list[str] = []
    numbers: dict[str, int] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key and set(key) <= set(_LETTERS):
            sizes.append((_letters(key, sizes), _values(word, value)))
        elif equals and key in _NUMBERS:
            numbers[key] = _number(word, value, 0 if key == "O" else 1)
        elif word in FORMS:
            forms.append(word)
        elif word in DTYPES or word == "tf32":
            types.append(word)
        elif word in _PARTS:
            parts.append(word)
        else:
            raise CommandError(
                f"{word!r} is no word of `tilesmith gemm`; known: MNK=1024 (letters of {_LETTERS}, lists 512,1024 and "
                f"ranges 1024:4096:1024), {', '.join(FORMS)}, {', '.join((*DTYPES, 'tf32'))}, {', '.join(_PARTS)}, "
                "t=TRIALS, s=SECONDS, O=OPTION"
            )
    problems = _problems(sizes, forms or ["nn"], types or ["fp32"], _epilogue(parts)) if sizes else ()
    return Asked(problems, numbers.get("t"), numbers.get("s"), numbers.get("O", FOREGROUND))


def read_line(line: Sequence[str], added: Sequence[str]) -> Asked:
    """Read a line of a list, and words that are added to each line.

    Args:
        line: Words, or those of a driver command; not empty.
        added: Words; to a command only ``t``, ``s`` and ``O`` can be added.

    Raises:
        CommandError: As ``read_words``, or the line is a bad command.
        ProblemError: As ``read_words``.
    """
    if line[0] not in GEMM_BASES:
        return read_words([*line, *added])
    asked = read_words(added)
    if any(word.partition("=")[0] not in _NUMBERS for word in added):
        raise CommandError(f"only t, s and O can be added to a driver command, got {' '.join(added)}")
    (problem,) = (signature for _, signature in parse_command(" ".join(line)).signatures)
    if not isinstance(problem, GemmSignature):
        raise CommandError(f"{line[0]} names no product")
    return Asked((problem,), asked.trials, asked.seconds, asked.option)


def _letters(key: str, sizes: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    for letter in key:
        if key.count(letter) > 1 or any(letter in others for others, _ in sizes):
            raise CommandError(f"{letter} is given twice")
    return key


def _values(word: str, text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        ends = part.split(":")
        if len(ends) not in (1, 3) or not all(_NUMBER.fullmatch(each) for each in ends):
            raise CommandError(f"{word!r}: {part!r} is neither a size (1024) nor first:last:step (1024:4096:1024)")
        first, *rest = map(int, ends)
        last, step = rest or (first, 1)
        if step < 1 or last < first:
            raise CommandError(f"{word!r}: {part!r} counts up from first to last in steps of 1 at least")
        if (last - first) // step >= MOST_SIZES:
            raise CommandError(f"{word!r}: {part!r} has more than {MOST_SIZES} sizes")
        found += range(first, last + 1, step)
    return tuple(dict.fromkeys(found))


def _number(word: str, text: str, least: int) -> int:
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise CommandError(f"{word!r}: {text!r} is not a whole number from {least} on")
    return int(text)


def _epilogue(parts: Sequence[str]) -> Epilogue:
    names = [part for part in parts if part not in ("bias", "residual")]
    if len(names) > 1:
        raise CommandError(f"{' and '.join(names)} are two activations; a product has one")
    return Epilogue("bias" in parts, names[0] if names else "none", "residual" in parts)


def _problems(
    sizes: Sequence[tuple[str, tuple[int, ...]]], forms: Sequence[str], types: Sequence[str], epilogue: Epilogue
) -> tuple[GemmSignature, ...]:
    given = "".join(letters for letters, _ in sizes)
    missing = [letter for letter in "MNK" if letter not in given]
    if missing:
        raise CommandError(f"{' and '.join(missing)} is not given; type for example {''.join(missing)}=1024")
    count = len(forms) * len(types)
    for _, values in sizes:
        count *= len(values)
    if count > MOST_SIZES:
        raise CommandError(f"these words name {count} products; at most {MOST_SIZES} are taken at a time")
    found = []
    for dtype, form in itertools.product(types, forms):
        for each in itertools.product(*(values for _, values in sizes)):
            size = {letter: value for (letters, _), value in zip(sizes, each, strict=True) for letter in letters}
            found.append(_problem(size, dtype, form, epilogue))
    return tuple(dict.fromkeys(found))


def _problem(size: dict[str, int], dtype: str, form: str, epilogue: Epilogue) -> GemmSignature:
    element, sums = ("fp32", "tf32") if dtype == "tf32" else (dtype, "")
    return GemmSignature(
        size["M"], size["N"], size["K"], batch=size.get("B", 1), trans_a=form[0] == "t", trans_b=form[1] == "t",
        dtype=element, acc_dtype=sums, epilogue=epilogue,
    )  # fmt: skip


def said(problem: GemmSignature) -> str:
    """A product in the words of the grammar, such as ``M=968 N=1376 K=2616 nt bf16 bias relu``."""
    m, n, k, epilogue = problem.m, problem.n, problem.k, problem.epilogue
    words = [f"MNK={m}"] if m == n == k else [f"M={m}", f"N={n}", f"K={k}"]
    if problem.batch != 1:
        words.append(f"B={problem.batch}")
    words += [form_of(problem), type_of(problem)]
    words += [name for name in ("bias", "residual") if getattr(epilogue, name)]
    return " ".join(words if epilogue.activation == "none" else [*words, epilogue.activation])


def form_of(problem: GemmSignature) -> str:
    return "nt"[problem.trans_a] + "nt"[problem.trans_b]


def type_of(problem: GemmSignature) -> str:
    return "tf32" if problem.acc_dtype == "tf32" else problem.dtype
