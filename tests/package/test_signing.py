"""Keys and signatures: made and read, verified as another library does, trusted, removed and revoked."""

from __future__ import annotations

import json
import logging
import os
import random
import stat
import sys

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hostile_packages import MAKER, OTHER, SMALL, resealed, sample
from package_samples import package
from tilesmith.cli.main import run
from tilesmith.errors import PackageError
from tilesmith.package.files import PackageFile, write
from tilesmith.package.form import encode
from tilesmith.package.index import INDEX_FILE, index_of, parse_index, write_index
from tilesmith.package.install import index_signer
from tilesmith.package.keys import PublicKey, forget, held_keys, hold, parse_key, trusted_folder, trusted_keys
from tilesmith.package.signing import load_key, make_key, read_public, sign_file
from tilesmith.package.trust import signer_of
from tilesmith.runtime._runtime import is_public_key, is_signature

MAKER_KEY = PublicKey("maker", MAKER.public_key().public_bytes_raw())
# RFC 8032, section 7.1: tests 1, 2 and 3: public key, message, signature.
VECTORS = [
    ("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655"
     "141438e7a100b"),
    ("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00"
     "d291612bb0c00"),
    ("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc02"
     "7beceea1ec40a"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def settings(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("TILESMITH_TRUSTED_KEYS", raising=False)


def said(capsys, *words):
    status = run(["package", *map(str, words)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_vectors_of_the_rfc():
    for key, message, signature in VECTORS:
        parts = bytes.fromhex(key), bytes.fromhex(signature), bytes.fromhex(message)
        assert is_public_key(parts[0])
        assert is_signature(*parts)
        assert not is_signature(parts[0], parts[1], parts[2] + b"\0")


def test_verified_as_another_library_does():
    """Signatures of messages of every length around the blocks of SHA-512; with a bit flipped in any of the three."""
    draw = random.Random(5)
    for size in (0, 1, 47, 48, 63, 64, 111, 112, 127, 128, 129, 1000):
        private = Ed25519PrivateKey.from_private_bytes(draw.randbytes(32))
        key, message = private.public_key().public_bytes_raw(), draw.randbytes(size)
        signature = private.sign(message)
        assert is_signature(key, signature, message)
        for part in range(3):
            parts = [key, signature, message]
            if parts[part]:
                changed = bytearray(parts[part])
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
                parts[part] = bytes(changed)
                assert not is_signature(*parts)
                with pytest.raises((InvalidSignature, ValueError)):
                    Ed25519PublicKey.from_public_bytes(parts[0]).verify(parts[1], parts[2])
    for point in SMALL:
        assert not is_public_key(point)
        with pytest.raises(PackageError, match="anybody can sign"):
            PublicKey("x", point)
    points = [draw.randbytes(32) for _ in range(40)]
    assert 5 < sum(map(is_public_key, points)) < 35  # half of all numbers are the y of a point
    assert not is_signature(b"", b"", b"")


def test_a_key_pair_is_private_and_is_read_again(tmp_path):
    before = os.umask(0)
    try:
        made = make_key("maker", tmp_path / "a.key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600
    private = serialization.load_pem_private_key((tmp_path / "a.key").read_bytes(), None)
    assert private.public_key().public_bytes_raw() == made.public.data
    assert (tmp_path / "a.pub").read_text() == made.public.line + "\n"
    assert parse_key(made.public.line) == made.public == load_key(str(tmp_path / "a.key")).public
    assert read_public(str(tmp_path / "a.pub")) == made.public
    with pytest.raises(PackageError, match="File exists"):
        make_key("maker", tmp_path / "a.key")
    with pytest.raises(PackageError, match="private key: keep it"):
        read_public(str(tmp_path / "a.key"))
    assert not load_key(str(tmp_path / "a.key")).warning
    (tmp_path / "a.key").chmod(0o640)
    assert "chmod 600" in load_key(str(tmp_path / "a.key")).warning
    (tmp_path / "b.pub").write_text("")
    with pytest.raises(PackageError, match="File exists"):
        make_key("maker", tmp_path / "b.key")
    assert not (tmp_path / "b.key").exists()


def test_an_encrypted_key(tmp_path):
    make_key("maker", tmp_path / "a.key", "a secret")
    assert b"ENCRYPTED" in (tmp_path / "a.key").read_bytes()
    assert load_key(str(tmp_path / "a.key"), lambda: "a secret").public.name == "maker"
    for word in ("another", ""):
        with pytest.raises(PackageError, match="passphrase is wrong"):
            load_key(str(tmp_path / "a.key"), lambda word=word: word)


def test_files_that_are_no_private_key(tmp_path):
    alien = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for data, words in ((b"", "no private key in PEM"), (b"x" * 100, "no private key in PEM"), (alien, "of ed25519"),
                        (bytes(1 << 20), "more than 65536")):  # fmt: skip
        (tmp_path / "a.key").write_bytes(data)
        with pytest.raises(PackageError, match=words):
            load_key(str(tmp_path / "a.key"))
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "nothing"):
        with pytest.raises(PackageError, match="cannot be read"):
            load_key(str(path))


def test_lines_that_are_no_public_key():
    line = MAKER_KEY.line
    for text in (
        "", "ed25519:", line.replace("ed25519", "rsa"), line.replace("=", ""), line.replace(" maker", ""),
        line.replace(" maker", " ../maker"), f"{line} x", line.replace("maker", "x" * 64),
        line[:11] + "!" + line[12:], "ed25519:AAAA maker", line.replace(" maker", " a\nb"),
    ):  # fmt: skip
        with pytest.raises(PackageError):
            parse_key(text)


def test_trusted_removed_and_revoked(tmp_path, monkeypatch):
    package = PackageFile(sample())
    assert signer_of(PackageFile(encode(_package()))) is None
    with pytest.raises(PackageError, match="which is not trusted"):
        signer_of(package)
    hold(MAKER_KEY)
    assert signer_of(package) == "maker"
    with pytest.raises(PackageError, match="another key of this name"):
        hold(PublicKey("maker", OTHER.public_key().public_bytes_raw()))
    forget("maker")
    with pytest.raises(PackageError, match="not trusted"):
        signer_of(package)
    with pytest.raises(PackageError, match="no key 'maker'"):
        forget("maker")
    for name in ("../x", "", "a/b"):
        with pytest.raises(PackageError, match="no key"):
            forget(name)
    fleet = tmp_path / "fleet.pub"
    fleet.write_text(f"# the keys of this fleet\n\n{MAKER_KEY.line}\n")
    monkeypatch.setenv("TILESMITH_TRUSTED_KEYS", str(fleet))
    assert signer_of(package) == "maker"
    with pytest.raises(PackageError, match="that one lies in"):
        forget("maker")
    fleet.write_text(f"revoked {MAKER_KEY.line}\n")
    with pytest.raises(PackageError, match="is revoked"):
        hold(MAKER_KEY)
    with pytest.raises(PackageError, match="revokes"):
        signer_of(package)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "b.pub").write_text(MAKER_KEY.line)
    (tmp_path / "keys" / "b.txt").write_text("no key")
    monkeypatch.setenv("TILESMITH_TRUSTED_KEYS", f"{tmp_path / 'keys'}:{fleet}")
    assert len(held_keys()) == 2  # a revocation wins over trust wherever it stands
    assert trusted_keys() == ()


def test_damaged_key_files_warn_and_are_left_out(tmp_path, caplog, monkeypatch):
    hold(MAKER_KEY)
    monkeypatch.setattr(logging.getLogger("tilesmith"), "propagate", True)
    folder = trusted_folder()
    (folder / "a.pub").write_bytes(b"\xff\xfe")
    (folder / "b.pub").write_text("ed25519:AAAA b\nrevoked\nx")
    (folder / "c.pub").write_bytes(bytes(1 << 17))
    (folder / "d.pub").mkdir()
    os.mkfifo(folder / "e.pub")
    (folder / "f.pub").symlink_to("nothing")
    (folder / "g.pub").write_text(MAKER_KEY.line.replace("maker", "g"))
    (folder / "g.pub").chmod(0o666)
    monkeypatch.setenv("TILESMITH_TRUSTED_KEYS", str(tmp_path / "missing"))
    assert [each.key.name for each in held_keys()] == ["maker"]
    assert signer_of(PackageFile(sample())) == "maker"
    told = "\n".join(caplog.messages)
    for name in ("a.pub", "b.pub:1", "b.pub:2", "b.pub:3", "c.pub", "d.pub", "e.pub", "f.pub", "g.pub", "missing"):
        assert name in told, name


def test_a_folder_that_others_can_write_is_not_trusted(monkeypatch, caplog):
    hold(MAKER_KEY)
    monkeypatch.setattr(logging.getLogger("tilesmith"), "propagate", True)
    trusted_folder().chmod(0o777)
    with pytest.raises(PackageError, match="not trusted"):
        signer_of(PackageFile(sample()))
    assert "every user can write to it" in "\n".join(caplog.messages)


def test_the_verbs(tmp_path, capsys):
    path, merged = tmp_path / "a.kdb", tmp_path / "b.kdb"
    write(path, _package())
    assert said(capsys, "verify", "--signed", path)[0] == 1
    status, out, err = said(capsys, "keygen", "vendor")
    line, fingerprint = out.splitlines()
    assert (status, parse_key(line).fingerprint) == (0, fingerprint)
    assert "vendor.key is private" in err
    assert said(capsys, "sign", path, "--key", "vendor")[:2] == (0, f"{path}: signed by vendor {fingerprint}\n")
    data = path.read_bytes()
    assert said(capsys, "sign", path, "--key", "vendor")[0] == 0
    assert path.read_bytes() == data  # the same key signs the same bytes in the same way
    assert "not trusted" in said(capsys, "verify", path)[1]
    assert said(capsys, "verify", "--signed", path)[0] == 1
    assert said(capsys, "trust", *line.split())[0] == 0
    assert said(capsys, "verify", "--signed", path)[:2] == (
        0,
        f"{path}: 14 entries, whole, signed by vendor {fingerprint}\n",
    )
    found = json.loads(said(capsys, "info", path, "--json")[1])
    assert (found["signer"], found["trust"], found["signed"]) == ("vendor", "trusted", parse_key(line).data.hex())
    rows = [json.loads(row) for row in said(capsys, "trust", "--list", "--json")[1].splitlines()]
    assert [(row["name"], row["state"], row["key"]) for row in rows] == [("vendor", "trusted", line)]
    status, _, err = said(capsys, "remove", path, "--kind", "perf", "-o", merged)
    assert (status, f"the signature of {path} was for its own bytes" in err) == (0, True)
    assert not PackageFile(merged).public_key
    status, _, err = said(capsys, "merge", path, merged, "-o", merged)
    assert (status, "not signed" in err, PackageFile(merged).public_key) == (0, True, b"")
    path.write_bytes(resealed(data[:72] + bytes(8) + data[80:]))
    status, _, err = said(capsys, "verify", path)
    assert (status, "wrongly signed" in err) == (1, True)
    path.write_bytes(data[:-1])
    assert said(capsys, "sign", path, "--key", "vendor")[0] == 2  # what is damaged is not signed
    assert path.read_bytes() == data[:-1]
    assert said(capsys, "trust", "--remove", "vendor")[0] == 0
    assert said(capsys, "trust", "--list")[1] == ""
    assert said(capsys, "trust", "--revoke", line)[0] == 0
    path.write_bytes(data)
    assert "revokes" in said(capsys, "verify", path)[1]
    for words in ((), ("--list", "--remove", "x"), ("--revoke",), ("nothing",), (tmp_path,)):
        assert said(capsys, "trust", *words)[0] == 2
    assert said(capsys, "keygen")[0] == 2


def test_passphrases_from_a_file(tmp_path, capsys):
    (tmp_path / "word").write_text("a secret\n")
    write(tmp_path / "a.kdb", _package())
    own = ("--passphrase-file", tmp_path / "word")
    assert said(capsys, "keygen", "-o", tmp_path / "ci.key", *own)[0] == 0
    assert said(capsys, "sign", tmp_path / "a.kdb", "--key", tmp_path / "ci.key", *own)[0] == 0
    (tmp_path / "word").write_text("another\n")
    status, _, err = said(capsys, "sign", tmp_path / "a.kdb", "--key", tmp_path / "ci.key", *own)
    assert (status, "passphrase is wrong" in err) == (2, True)
    (tmp_path / "word").write_text("")
    assert "its first line is empty" in said(capsys, "sign", tmp_path / "a.kdb", "--key", tmp_path / "ci.key", *own)[2]


def test_an_index_is_signed(tmp_path):
    (tmp_path / "a.kdb").write_bytes(sample())
    write_index(tmp_path, index_of(tmp_path))
    path = tmp_path / INDEX_FILE
    assert sign_file(path, make_key("maker", tmp_path / "m.key")) == ""
    index = parse_index(path.read_bytes())
    with pytest.raises(PackageError, match="not trusted"):
        index_signer(str(path), index)
    hold(PublicKey("m", index.public_key))
    assert index_signer(str(path), index) == "m"
    path.write_text("tilesmith packages 1\n")
    with pytest.raises(PackageError, match="cut off"):
        sign_file(path, load_key(str(tmp_path / "m.key")))


def test_verifying_needs_no_library(tmp_path, capsys, monkeypatch):
    """``cryptography`` is missing: packages are verified, keys trusted; what makes or signs says what to install."""
    hold(MAKER_KEY)
    (tmp_path / "a.kdb").write_bytes(sample())
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    assert "signed by maker" in said(capsys, "verify", "--signed", tmp_path / "a.kdb")[1]
    for words in (("keygen", "x"), ("sign", tmp_path / "a.kdb", "--key", "x")):
        status, _, err = said(capsys, *words)
        assert (status, "pip install cryptography" in err) == (2, True)


def _package():
    return package(3)
