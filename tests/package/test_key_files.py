"""Files of public keys: the C tools and Python read the same from each, whatever stands in it."""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

import tilesmith.runtime
from hostile_packages import MAKER, OTHER
from tilesmith.package.keys import PublicKey, held_keys
from tilesmith.toolchain.compilers import find_compiler

TOOLS = Path(tilesmith.runtime.__file__).parent / "csrc" / "tools"
pytestmark = pytest.mark.needs_compiler
UNKNOWN, TRUSTED, REVOKED = range(3)


@pytest.fixture(scope="module")
def c(tmp_path_factory):
    out = tmp_path_factory.mktemp("c") / "keys.so"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*find_compiler().command, *flags, str(TOOLS / "ts_keys.c"), "-o", str(out)], check=True)
    return ctypes.CDLL(str(out))


def by_python(key: bytes) -> tuple[int, str]:
    held = [each for each in held_keys() if each.key.data == key]
    revoked = next((each for each in held if each.is_revoked), None)
    if revoked is not None:
        return REVOKED, revoked.key.name
    return (TRUSTED, held[0].key.name) if held else (UNKNOWN, "")


def test_both_read_the_same(c, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "keys"
    monkeypatch.setenv("TILESMITH_TRUSTED_KEYS", str(file))
    key = MAKER.public_key().public_bytes_raw()
    lines = [PublicKey("maker", key).line, PublicKey("other", OTHER.public_key().public_bytes_raw()).line]
    pieces = [
        *lines, lines[0].split()[0], "revoked", "revoked ", "# ", "#", " ", "  ", "\t", "\r", "\r\n", "\v", "\f",
        "\x85", "\u00a0", "\u2028", "\n", "\n\n", "x", "=", "a b", ".", "@", "x" * 63, "x" * 64, "maker", "ed25519:",
        "ed25519", "AAAA", "\x7f",
    ]  # fmt: skip
    draw, seen = random.Random(8), set()
    for _ in range(800):
        text = "".join(draw.choice(pieces if draw.random() < 0.5 else [*lines, "revoked ", "\n"])
                       for _ in range(draw.randint(1, 7)))  # fmt: skip
        file.write_text(text, newline="")
        name = ctypes.create_string_buffer(64)
        standing = c.ts_keys_find(text.encode(), key, name)
        assert (standing, name.value.decode() if standing else "") == by_python(key), repr(text)
        seen.add(standing)
    assert seen == {UNKNOWN, TRUSTED, REVOKED}
