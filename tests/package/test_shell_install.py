"""The installer for machines without Python: a shell, curl and ts-query, and no interpreter in PATH."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_installing import FILE, LARGE, NEW, OLD, made, signed, tidy

from machine_library import ts_query
from package_samples import MANIFEST
from package_server import serving
from tilesmith.package import install as install_module
from tilesmith.package.files import PackageFile
from tilesmith.package.index import INDEX_FILE, index_of, write_index
from tilesmith.package.keys import PublicKey
from tilesmith.toolchain.packages import consent_text

SCRIPT = Path(install_module.__file__).parent / "shell" / "tilesmith-install.sh"
TOOLS = (
    "basename cat chmod cksum cp curl cut dirname flock head mkdir mktemp mv rm sed sh sleep sort sync tail tr uname"
).split()
pytestmark = [pytest.mark.needs_compiler, pytest.mark.needs_linux]
SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


@pytest.fixture
def site():
    with serving() as found:
        yield found


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "installed"


@pytest.fixture
def shell(tmp_path, folder):
    """``shell(words)``: exit status, output and messages of the script on a machine with a few tools and no Python."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        (programs / tool).symlink_to(shutil.which(tool))
    environment = {"PATH": str(programs), "HOME": str(tmp_path), "TILESMITH_PACKAGE_PATH": f"x.kdb:{folder}"}

    def run(*words, interpreter="dash", target=MANIFEST.target, wait=True, **more):
        program = [shutil.which(interpreter), *(["sh"] if interpreter == "busybox" else [])]
        named = ["--query", str(ts_query()), *(["--target", target] if target else [])]
        process = subprocess.Popen(
            [*program, str(SCRIPT), *named, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment | more, cwd=tmp_path, start_new_session=True,
        )  # fmt: skip
        if not wait:
            return process
        out, error = process.communicate(timeout=60)
        return process.returncode, out, error

    return run


@pytest.fixture
def key(tmp_path):
    """A key that the machine of the script trusts."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    public = PublicKey("maker", private.public_key().public_bytes_raw())
    trusted = tmp_path / ".config" / "tilesmith" / "trusted"
    trusted.mkdir(parents=True)
    (trusted / "maker.pub").write_text(f"# who makes them\n{public.line}\n")
    return private


@pytest.mark.parametrize("interpreter", SHELLS)
def test_versions(shell, folder, tmp_path, interpreter):
    def said(data, *words):
        (tmp_path / "a.kdb").write_bytes(data)
        return shell(*words, "a.kdb", interpreter=interpreter)

    path = folder / FILE
    assert said(OLD) == (0, f"{path}: installed, test 3, not signed\n", "")
    assert path.read_bytes() == OLD
    assert path.stat().st_mode & 0o777 == 0o644
    assert said(OLD)[1] == f"{path}: unchanged, test 3, not signed\n"
    assert said(NEW)[1] == f"{path}: updated, test 4, not signed\n"
    status, out, error = said(OLD)
    assert (status, out) == (2, "")
    assert "--downgrade" in error
    assert "--replace" in said(made(4, 2))[2]
    assert said(NEW[:-1])[0] == said(b"")[0] == said(b"<html>")[0] == 2
    assert path.read_bytes() == NEW
    assert said(made(4, 2), "--replace")[1].startswith(f"{path}: replaced")
    assert said(OLD, "--downgrade")[1].startswith(f"{path}: downgraded")
    path.write_bytes(b"damaged")
    assert said(OLD)[1].startswith(f"{path}: replaced")
    huge = made(2**64 - 1)
    assert said(huge)[1].startswith(f"{path}: updated")
    assert said(made(2**64 - 2))[0] == 2
    assert path.read_bytes() == huge
    assert tidy(folder)
    other = made(target="x86_64-v4:64:zen5")
    assert "--target x86_64-v4:64:zen5" in said(other)[2]
    assert "the nearest" in said(other, "--nearest")[1]
    (consent,) = folder.glob("*.nearest")
    package = PackageFile(consent.with_suffix(""))
    assert consent.read_bytes() == consent_text(consent.stem, package.identity)


def test_urls_and_signatures(shell, folder, site, key):
    site.files = {"plain.kdb": OLD, "good.kdb": signed(NEW, key)}
    status, out, error = shell(site.url("plain.kdb"))
    assert (status, out) == (2, "")
    assert "--allow-unsigned" in error
    assert shell(site.url("good.kdb"), XDG_CONFIG_HOME="/none")[0] == 2  # nobody is trusted there
    assert shell(site.url("good.kdb"))[:2] == (0, f"{folder / FILE}: installed, test 4, signed by maker\n")
    trusted = Path(folder).parent / ".config" / "tilesmith" / "trusted" / "maker.pub"
    line = trusted.read_text().splitlines()[1]
    for wrong in ("", f"{line}\nrevoked {line}\n", f"revoked {line}\n", line.replace("ed25519:", "ed25519:A")):
        trusted.write_text(wrong)
        assert shell(site.url("good.kdb"))[0] == 2
    trusted.write_text(line)
    forged = bytearray(signed(made(5), key))
    forged[420] ^= 1
    site.files["good.kdb"] = bytes(forged)
    assert shell("--allow-unsigned", site.url("good.kdb"))[0] == 2
    site.files["good.kdb"] = signed(OLD, key)  # rolled back
    assert "--downgrade" in shell(site.url("good.kdb"))[2]
    assert shell("--keys", trusted, site.url("good.kdb"), "--downgrade")[0] == 2  # options come first
    assert (folder / FILE).read_bytes() == signed(NEW, key)
    assert tidy(folder)


def test_a_cut_connection_and_damage_on_the_way(shell, folder, site):
    site.files["a.kdb"], site.cut = LARGE, [20_000]
    assert shell("--allow-unsigned", site.url("a.kdb"))[0] == 0
    assert site.asked == [("a.kdb", ""), ("a.kdb", "bytes=20000-")]
    assert (folder / FILE).read_bytes() == LARGE
    (folder / FILE).unlink()
    site.ranges, site.cut = False, [30_000]
    assert shell("--allow-unsigned", site.url("a.kdb"))[0] == 0
    assert (folder / FILE).read_bytes() == LARGE
    site.files["b.kdb"] = b"x" * 100
    assert shell("--allow-unsigned", site.url("b.kdb"))[0] == shell("--allow-unsigned", site.url("none.kdb"))[0] == 2
    site.moved["c.kdb"] = "file:///etc/passwd"
    assert shell("--allow-unsigned", site.url("c.kdb"))[0] == 2
    assert tidy(folder)


def test_an_index(shell, folder, site, tmp_path, key):
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for number, target in enumerate(("x86_64-v4:2:zen5", "x86_64-v4:16:zen5", "sm_90a:132:h200")):
        (shelf / f"p{number}.kdb").write_bytes(signed(made(target=target), key))
    write_index(shelf, index_of(shelf))
    site.files = {each.name: each.read_bytes() for each in shelf.iterdir()}
    for place in ("shelf", f"{shelf}/{INDEX_FILE}", f"file://{shelf}", site.address, f"{site.address}/{INDEX_FILE}?x"):
        status, out, error = shell("--auto", place)
        assert (status, out) == (0, f"{folder / FILE}: installed, test 3, signed by maker\n"), error
        (folder / FILE).unlink()
    status, out, error = shell("--auto", site.address, target="x86_64-v4:12:zen5")
    assert (status, out) == (1, "")
    assert "the nearest is for x86_64-v4:16:zen5" in error
    assert "the nearest)" in shell("--auto", site.address, "--nearest", target="x86_64-v4:12:zen5")[1]
    site.files["p0.kdb"] = signed(made(9), key)
    assert shell("--auto", site.address)[0] == 2
    site.files["p0.kdb"] = signed(made(9), key) + bytes(1 << 16)
    assert shell("--auto", site.address)[0] == 2
    assert not (folder / FILE).exists()
    assert shell("--auto", "s3://bucket/x")[0] == 2
    assert tidy(folder)


def test_the_signature_of_an_index(shell, folder, tmp_path, key):
    """As Python has it: an index without one is taken; a wrong one, or one of an unknown or revoked key, is refused."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "p0.kdb").write_bytes(NEW)
    plain = index_of(shelf)

    def taken(text):
        shutil.rmtree(folder, ignore_errors=True)
        (shelf / INDEX_FILE).write_text(text)
        status, _, error = shell("--auto", shelf)
        assert (folder / FILE).exists() == (status == 0)
        return status == 0, error

    def by(private):
        message = private.sign(plain.message)
        return replace(plain, public_key=private.public_key().public_bytes_raw(), signature=message).text

    right = by(key)
    assert taken(plain.text)[0]
    assert taken(right)[0]
    stranger = by(Ed25519PrivateKey.generate())
    assert "a key that is not trusted" in taken(stranger)[1]
    # The signature of one key under the name of another, one bit of it, and another line under it.
    swapped = right.replace(right.split()[-2], stranger.split()[-2])
    last = right[-2]
    bit = f"{right[:-2]}{'0' if last != '0' else '1'}\n"
    for text in (swapped, bit, right.replace(" test ", " best ")):
        done, error = taken(text)
        assert not done
        assert "its signature is wrong" in error
    trusted = tmp_path / ".config" / "tilesmith" / "trusted" / "maker.pub"
    trusted.write_text("revoked " + trusted.read_text().splitlines()[1] + "\n")
    assert "revoked: maker" in taken(right)[1]


def test_killed_at_any_moment(shell, folder, site):
    """The old package or the new one; and the next run finishes."""
    site.files = {"a.kdb": NEW, "b.kdb": made(5, 5)}
    shell("--allow-unsigned", site.url("a.kdb"))
    states = set()
    for number in range(12):
        (folder / FILE).write_bytes(NEW)
        process = shell("--allow-unsigned", site.url("b.kdb"), wait=False)
        time.sleep(0.02 * number)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        states.add((folder / FILE).read_bytes())
    assert states <= {NEW, site.files["b.kdb"]}
    status, _, error = shell("--allow-unsigned", site.url("b.kdb"))
    assert (status, error) == (0, "")
    assert (folder / FILE).read_bytes() == site.files["b.kdb"]


def test_two_at_once(shell, folder, site):
    site.files["a.kdb"] = LARGE
    running = [shell("--allow-unsigned", site.url("a.kdb"), wait=False) for _ in range(3)]
    results = [(each.communicate(timeout=60), each.returncode) for each in running]
    assert [status for _, status in results] == [0, 0, 0], results
    assert (folder / FILE).read_bytes() == LARGE
    assert tidy(folder)


def test_help_and_bad_options(shell, tmp_path):
    status, out, _ = shell("--help")
    assert status == 0
    assert "--auto INDEX" in out
    for words in ((), ("--none", "a.kdb"), ("--auto", "x", "a.kdb"), ("--auto",), ("none.kdb",), ("s3://a/b.kdb",)):
        status, out, error = shell(*words)
        assert (status, out) == (2, ""), words
        assert error
