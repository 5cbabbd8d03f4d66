"""Indexes and what is taken of them: Python and the C tool read and choose alike."""

from __future__ import annotations

import hashlib
import random
import subprocess
from dataclasses import replace

import pytest

from machine_library import ts_query
from package_samples import MANIFEST, package
from tilesmith.errors import PackageError
from tilesmith.package.files import write
from tilesmith.package.index import INDEX_FILE, IndexLine, PackageIndex, index_of, parse_index, write_index
from tilesmith.package.picking import pick
from tilesmith.targets.fitting import Fit
from tilesmith.targets.names import parse_target

TARGETS = tuple(
    "x86_64-v4:2:zen5 x86_64-v4:4:zen5 x86_64-v4:4:zen4 x86_64-v4:8:zen5 x86_64-v4:16:zen5 x86_64-v3:4:zen5 "
    "x86_64-v3:6:zen3 x86_64-v2:1:generic x86_64-v4-bf16:4:zen5 aarch64:4:neoverse-v2 aarch64:8:generic "
    "sm_90a:132:h200 sm_90a:132:h100 sm_90a:114:h100-pcie sm_90a:78:h20 sm_80:108:a100-sxm4-80gb sm_89:58:l4 "
    "future:7:card".split()
)


def line(target, name="boo", counter=1, file=None):
    place = file or f"{name}-{counter}-{target.replace(':', '-')}.kdb"
    digest = hashlib.sha256(f"{target} {name} {counter}".encode()).hexdigest()
    return IndexLine(target, name, counter, digest, 4096 + counter % 1000, place)


def index(*lines, **changes):
    return PackageIndex(tuple(sorted(lines, key=lambda each: each.key)), **changes)


def asked(path, *words):
    done = subprocess.run(
        [str(ts_query()), "pick", str(path), *words], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, [each.split(" ") for each in done.stdout.splitlines()]


def test_text():
    made = index(line(TARGETS[0]), line(TARGETS[1], counter=2**64 - 1), line(TARGETS[0], "coo"))
    assert parse_index(made.text.encode()) == made
    signed = replace(made, public_key=b"k" * 32, signature=b"s" * 64)
    assert parse_index(signed.text.encode()) == signed
    assert signed.message == made.message != index(line(TARGETS[0])).message
    assert made.text.splitlines()[0] == "tilesmith packages 1"
    assert parse_index(index().text.encode()) == index()


@pytest.mark.needs_compiler
def test_both_readers_refuse_the_same(tmp_path):
    """Every damage of a character, and every line lost, doubled or exchanged."""
    rng = random.Random(5)
    text = index(*(line(target, name) for target in TARGETS[:4] for name in ("boo", "coo"))).text
    text += f"signed {'ab' * 32} {'01' * 64}\n"
    cases = [text[:at] for at in rng.sample(range(len(text)), 12)]
    cases += [text + "\n", text + "x", text.replace("\n", "\r\n")]
    for _ in range(90):
        at = rng.randrange(len(text))
        cases.append(text[:at] + rng.choice(" \n\t-./:09azAZ\x7f\xe9~") + text[at + 1 :])
    for _ in range(15):
        lines = text.splitlines(keepends=True)
        at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines.insert(to, lines[at] if rng.random() < 0.5 else lines.pop(at))
        cases.append("".join(lines))
    cases += [
        text.replace(" 1 ", word, 1) for word in (" 01 ", " -1 ", " 18446744073709551616 ", "  ", " +1 ", " 1e3 ")
    ]
    cases += [text.replace("boo-1", word, 1) for word in ("../boo", "/boo", ".boo", "-boo", "b" * 200, "+_boo")]
    cases += [text.replace(" boo ", f" {word} ", 1) for word in ("Boo", ".boo", "b" * 64, "-")]
    refused = 0
    for number, case in enumerate(cases):
        (tmp_path / "index").write_bytes(case.encode("latin-1"))
        try:
            parse_index(case.encode("latin-1"))
            ours = True
        except PackageError:
            ours = False
        status, _ = asked(tmp_path / "index", "--target", TARGETS[0])
        assert (status != 2) == ours, (number, case)
        refused += not ours
    assert 60 < refused < len(cases)  # another digit of a digest is no damage that an index can show


@pytest.mark.needs_compiler
def test_both_choose_the_same(tmp_path):
    rng = random.Random(7)
    taken = 0
    for number in range(60):
        few = rng.sample(TARGETS, rng.randrange(1, 9))
        lines = [line(t, name, counter) for t in few for name in ("boo", "coo") for counter in rng.sample(range(20), 2)]
        rng.shuffle(lines)
        made = index(*lines[: rng.randrange(1, len(lines) + 1)])
        write_index(tmp_path, made)
        machines = rng.sample(TARGETS[:-1], rng.randrange(1, 4))
        nearest = number % 3 > 0
        names = ["boo"] if number % 5 == 0 else []
        words = [word for target in machines for word in ("--target", target)]
        words += [*(["--nearest"] if nearest else []), *(["--name", *names] if names else [])]
        status, found = asked(tmp_path / INDEX_FILE, *words)
        picks = pick(
            made.lines, [parse_target(each) for each in machines], Fit.NEAREST if nearest else Fit.EXACT, names
        )
        ours = {("exact" if each.fit == Fit.EXACT else "nearest", each.line.file) for each in picks}
        # The C tool repeats a package that suits two targets.
        theirs = {}
        for words in found:
            theirs.setdefault(words[-1], (words[0], words[-1]))
        assert set(theirs.values()) == ours, (machines, nearest, made.text)
        assert status == (0 if ours else 1)
        taken += len(ours)
    assert taken > 60


def test_the_index_of_a_folder(tmp_path):
    for number, target in enumerate(("x86_64-v4:2:zen5", "sm_90a:132:h200")):
        write(tmp_path / f"{number}.kdb", package(2, replace(MANIFEST, target=target)))
    made = index_of(tmp_path)
    assert [each.target for each in made.lines] == ["sm_90a:132:h200", "x86_64-v4:2:zen5"]
    assert write_index(tmp_path, made).read_text() == made.text == index_of(tmp_path).text
    (tmp_path / "2.kdb").write_bytes((tmp_path / "1.kdb").read_bytes())
    with pytest.raises(PackageError, match="two packages"):
        index_of(tmp_path)
    (tmp_path / "2.kdb").write_bytes((tmp_path / "1.kdb").read_bytes()[:-1])
    with pytest.raises(PackageError, match=r"2\.kdb"):
        index_of(tmp_path)
    (tmp_path / "2.kdb").unlink()
    (tmp_path / "1.kdb").rename(tmp_path / "a b.kdb")
    with pytest.raises(PackageError, match=r"a b\.kdb.*cannot stand"):
        index_of(tmp_path)
    with pytest.raises(PackageError, match="cannot be read"):
        index_of(tmp_path / "none")
