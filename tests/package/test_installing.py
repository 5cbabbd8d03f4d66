"""Installing: the old package or the whole new one, from files, a web server that misbehaves, and an object store."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from dataclasses import replace

import fsspec
import pytest

from package_samples import MANIFEST, package
from package_server import serving, until
from tilesmith.errors import PackageError
from tilesmith.package import download as download_module
from tilesmith.package.files import PackageFile
from tilesmith.package.form import SIGNED as SIGNED_PACKAGE
from tilesmith.package.form import encode, identity, with_signature
from tilesmith.package.index import INDEX_FILE, index_of, write_index
from tilesmith.package.install import Rules, install, install_picked, read_index
from tilesmith.package.keys import PublicKey, hold
from tilesmith.package.picking import Pick
from tilesmith.targets.fitting import Fit
from tilesmith.targets.names import parse_target
from tilesmith.toolchain.arriving import Patience

MACHINE = parse_target(MANIFEST.target)
RULES = Rules((MACHINE,))
OPEN = replace(RULES, allow_unsigned=True)
QUICK = Patience(5.0, 0.4, 10.0)


def made(counter=3, problems=3, size=300, **changes):
    return encode(package(problems, replace(MANIFEST, counter=counter, **changes), size=size))


OLD, NEW, LARGE = made(3), made(4, 4), made(5, 3, 60_000)
FILE = MANIFEST.file_name


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "installed"


@pytest.fixture
def site(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(download_module, "_PAUSE_S", 0.01)
    with serving() as found:
        yield found


@pytest.fixture
def put(tmp_path):
    """``put(data)``: the path of a file with it."""

    def write(data, name="given.kdb"):
        (tmp_path / name).write_bytes(data)
        return str(tmp_path / name)

    return write


@pytest.fixture
def key(tmp_path, monkeypatch):
    """A function that signs packages with a key that this machine trusts."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    private = Ed25519PrivateKey.generate()
    hold(PublicKey("maker", private.public_key().public_bytes_raw()))
    return private


def signed(data, private):
    return with_signature(data, private.public_key().public_bytes_raw(), private.sign(SIGNED_PACKAGE + identity(data)))


def tidy(folder):
    """Nothing but packages and consents is left in the folder."""
    return {each.suffix for each in folder.rglob("*") if each.is_file()} <= {".kdb", ".nearest"}


def refused(place, folder, rules=RULES):
    """The message; the folder keeps what it has."""
    before = {each: each.read_bytes() for each in folder.glob("*.kdb")}
    with pytest.raises(PackageError) as error:
        install(place, folder, rules)
    assert {each: each.read_bytes() for each in folder.glob("*.kdb")} == before
    assert place in str(error.value) or str(folder) in str(error.value)
    return str(error.value)


def test_versions(put, folder):
    place = put(OLD)
    assert install(place, folder, RULES).action == "installed"
    path = folder / FILE
    assert path.read_bytes() == OLD
    assert path.stat().st_mode & 0o777 == 0o644
    assert install(f"file://{place}", folder, RULES).action == "unchanged"
    assert install(put(NEW), folder, RULES).action == "updated"
    assert "--downgrade" in refused(put(OLD), folder)
    assert "--downgrade" in refused(put(OLD), folder, replace(RULES, replace=True))
    other = made(4, 2)
    assert "--replace" in refused(put(other), folder)
    assert "--replace" in refused(put(other), folder, replace(RULES, downgrade=True))
    assert install(put(other), folder, replace(RULES, replace=True)).action == "replaced"
    assert install(put(OLD), folder, replace(RULES, downgrade=True)).action == "downgraded"
    path.write_bytes(OLD[:-5])  # damaged: nothing is lost with it
    assert install(put(OLD), folder, RULES).action == "replaced"
    body = bytearray(OLD)
    body[-7] ^= 1
    path.write_bytes(body)
    assert install(put(OLD), folder, RULES).action == "replaced"
    assert path.read_bytes() == OLD
    assert tidy(folder)


def test_damage_is_never_installed(put, folder):
    install(put(OLD), folder, RULES)
    flipped = bytearray(NEW)
    for at in (3, 70, 500, len(NEW) // 2, len(NEW) - 1):
        flipped[at] ^= 16
        refused(put(bytes(flipped)), folder)
        flipped[at] ^= 16
    for data in (b"", NEW[:-1], NEW[:600], NEW + b"\0", b"<html>no such page</html>"):
        refused(put(data), folder)
    assert "cannot be read" in refused(str(folder / "none.kdb"), folder)
    assert "ftp:// is not known" in refused("ftp://127.0.0.1/x.kdb", folder)
    assert tidy(folder)


def test_which_machine(put, folder):
    for target, fit in (
        ("x86_64-v4:2:zen5", Fit.EXACT), ("x86_64-v3:2:generic", Fit.RUNS), ("x86_64-v4:1:zen4", Fit.RUNS),
        ("x86_64-v4:64:zen5", Fit.NEAREST), ("x86_64-v4-bf16:2:zen5", Fit.NONE), ("aarch64:2:generic", Fit.NONE),
        ("sm_90a:132:h200", Fit.NONE), ("future:9:x", Fit.NONE),
    ):  # fmt: skip
        place = put(made(target=target))
        if fit != Fit.EXACT:
            text = refused(place, folder)
            assert f"`--target {target}`" in text
            assert ("--nearest" in text) == (fit != Fit.NONE)
        if fit != Fit.NONE:
            assert install(place, folder, replace(RULES, nearest=True)).fit == fit
        else:
            refused(place, folder, replace(RULES, nearest=True))
        install(place, folder, Rules(None))
    gpu = Rules((MACHINE, parse_target("sm_90a:132:h200")))
    assert install(put(made(target="sm_90a:132:h200")), folder, gpu).fit == Fit.EXACT
    assert "--nearest" in refused(put(made(target="sm_90a:114:h100-pcie")), folder, gpu)
    assert "--nearest" not in refused(put(made(target="sm_80:108:a100-sxm4-80gb")), folder, gpu)


def test_from_a_url_signed_packages_alone(site, folder, key, put):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    site.files = {"plain.kdb": OLD, "good.kdb": signed(OLD, key), "new.kdb": signed(NEW, key),
                  "alien.kdb": signed(NEW, Ed25519PrivateKey.generate()),
                  "moved.kdb": with_signature(NEW, signed(OLD, key)[384:416], signed(OLD, key)[416:480])}  # fmt: skip
    assert "--allow-unsigned" in refused(site.url("plain.kdb"), folder)
    done = install(site.url("good.kdb"), folder, RULES)
    assert (done.action, done.signer) == ("installed", "maker")
    for name in ("alien.kdb", "moved.kdb"):
        for rules in (RULES, OPEN):
            refused(site.url(name), folder, rules)
        refused(put(site.files[name]), folder)
    assert install(site.url("plain.kdb"), folder, OPEN).action == "unchanged"  # the signature is not taken away
    assert PackageFile(folder / FILE).public_key
    assert install(site.url("new.kdb"), folder, RULES).action == "updated"
    assert "--downgrade" in refused(site.url("good.kdb"), folder)
    assert tidy(folder)


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_connection_goes_on_where_it_stopped(site, folder, ranges):
    site.files["a.kdb"], site.ranges, site.cut = LARGE, ranges, [20_000, 30_000, 5]
    assert install(site.url("a.kdb"), folder, OPEN).action == "installed"
    begins = [asked for _, asked in site.asked]
    if ranges:
        assert begins == ["", "bytes=20000-", "bytes=50000-", "bytes=50005-"]
    else:
        assert len(begins) == 4  # and each reply had all of it
    assert (folder / FILE).read_bytes() == LARGE
    assert tidy(folder)


def test_a_later_process_goes_on(site, folder):
    site.files["a.kdb"], site.cut = LARGE, [20_000] + [0] * 4
    assert "20000 bytes are kept" in refused(site.url("a.kdb"), folder, OPEN)
    site.asked.clear()
    install(site.url("a.kdb"), folder, OPEN)
    assert [asked for _, asked in site.asked] == ["bytes=20000-"]
    assert tidy(folder)


def test_another_content_at_the_url_begins_anew(site, folder):
    site.files["a.kdb"], site.cut = LARGE, [20_000] + [0] * 4
    refused(site.url("a.kdb"), folder, OPEN)
    site.files["a.kdb"] = NEW  # shorter than what is kept
    install(site.url("a.kdb"), folder, OPEN)
    assert (folder / FILE).read_bytes() == NEW
    assert tidy(folder)


def test_what_is_kept_and_damaged_is_fetched_again(site, folder):
    site.files["a.kdb"], site.cut = LARGE, [20_000] + [0] * 4
    refused(site.url("a.kdb"), folder, OPEN)
    (kept,) = (folder / "partial").iterdir()
    data = bytearray(kept.read_bytes())
    data[9000] ^= 1
    kept.write_bytes(data)
    install(site.url("a.kdb"), folder, OPEN)
    assert (folder / FILE).read_bytes() == LARGE
    assert tidy(folder)


def test_servers_that_misbehave(site, folder):
    place = site.url("a.kdb")
    site.files["a.kdb"] = NEW
    rules = replace(OPEN, patience=QUICK)

    def told(**behaviour):
        usual = {name: getattr(site, name) for name in behaviour}
        for name, value in behaviour.items():
            setattr(site, name, value)
        text = refused(place, folder, rules)
        for name, value in usual.items():
            setattr(site, name, value)
        site.cut, site.statuses = [], []
        return text

    assert "404" in told(files={})
    site.files["a.kdb"] = NEW
    assert "502" in told(statuses=[502] * 4)
    assert "redirect" in told(moved={"a.kdb": "/a.kdb"})
    assert (
        "redirection to url 'file:///etc/passwd' is not allowed" in told(moved={"a.kdb": "file:///etc/passwd"}).lower()
    )
    assert "bytes, more than" in told(headers={"Content-Length": str(1 << 40)})
    assert "gzip" in told(headers={"Content-Encoding": "gzip"})
    assert "broke off" in told(cut=[100] + [0] * 5)
    assert "nothing came for 0.4 s" in told(drip_s=3.0, ranges=False)
    # Nothing but the package itself says that its end is missing.
    assert "package" in told(lengths=False, ranges=False, cut=[1000, 1000])
    assert tidy(folder)
    site.statuses, site.cut = [503, 429], []
    assert install(place, folder, rules).action == "installed"
    site.moved["b.kdb"] = "/a.kdb"
    assert install(site.url("b.kdb"), folder, rules).action == "unchanged"
    assert "cannot be fetched" in refused("http://127.0.0.1:9/a.kdb", folder, rules)
    assert "cannot be fetched" in refused("http://[/a.kdb", folder, rules)


def test_a_slow_server_meets_the_deadline(site, folder):
    site.files["a.kdb"], site.drip_s = LARGE, 0.2  # 24 s in all
    began = time.monotonic()
    text = refused(site.url("a.kdb"), folder, replace(OPEN, patience=Patience(5.0, 5.0, 1.0)))
    assert time.monotonic() - began < 4.0
    assert "did not come within" in text
    until(lambda: not any(thread.name == "tilesmith-fetch" for thread in threading.enumerate()))


def test_no_way_from_https_to_http():
    import urllib.request

    from tilesmith.toolchain.request import _Redirect

    handler = _Redirect()
    asked = urllib.request.Request("https://a.example/x")
    for there in ("http://a.example/x", "ftp://a.example/x", "file:///x"):
        with pytest.raises(OSError, match="redirects from https"):
            handler.redirect_request(asked, None, 302, "Found", {}, there)
    assert handler.redirect_request(asked, None, 302, "Found", {}, "https://b.example/y").full_url.startswith("https")


def test_an_index(site, tmp_path, folder, key):
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for number, target in enumerate(("x86_64-v4:2:zen5", "x86_64-v4:16:zen5", "sm_90a:132:h200")):
        (shelf / f"p{number}.kdb").write_bytes(signed(made(target=target), key))
    index = index_of(shelf)
    write_index(shelf, index)
    site.files = {each.name: each.read_bytes() for each in shelf.iterdir()}
    line = next(each for each in index.lines if each.target == MANIFEST.target)
    for place in (str(shelf), f"file://{shelf}/", site.address, f"{site.address}/{INDEX_FILE}?x=1"):
        found, read = read_index(place)
        assert read == index
        assert install_picked(found, Pick(line, MACHINE.name, Fit.EXACT), folder, RULES).signer == "maker"
        (folder / FILE).unlink()
    picked = Pick(line, MACHINE.name, Fit.EXACT)
    install_picked(site.url(INDEX_FILE), picked, folder, RULES)
    site.asked.clear()
    assert install_picked(site.url(INDEX_FILE), picked, folder, RULES).action == "unchanged"
    assert site.asked == []  # nothing is fetched for that
    (folder / FILE).unlink()
    site.files["p0.kdb"] = signed(made(7), key)  # signed, and not what the index says
    with pytest.raises(PackageError, match=r"bytes, more than|sha256"):
        install_picked(site.url(INDEX_FILE), picked, folder, RULES)
    site.files[INDEX_FILE] = index.text.encode()[:-9]
    with pytest.raises(PackageError, match="cut off"):
        read_index(site.address)


def test_an_object_store(folder, monkeypatch):
    store = fsspec.filesystem("memory")
    store.pipe("/shelf/a.kdb", LARGE)
    assert "--allow-unsigned" in refused("memory://shelf/a.kdb", folder)
    assert install("memory://shelf/a.kdb", folder, OPEN).action == "installed"
    assert (folder / FILE).read_bytes() == LARGE
    assert "cannot be fetched" in refused("memory://shelf/none.kdb", folder, OPEN)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "fsspec.core", None)
        assert refused("s3://bucket/a.kdb", folder, OPEN).startswith("s3://bucket/a.kdb: s3:// needs another package")
    assert tidy(folder)


def test_several_installations_at_once(put, folder):
    """Of many versions in any order the newest is there at the end, and each is whole meanwhile."""
    places = [put(made(counter, counter), f"{counter}.kdb") for counter in range(1, 9)]
    failures, over = [], threading.Event()

    def one(place):
        try:
            install(place, folder, RULES)
        except PackageError as error:
            if "--downgrade" not in str(error):
                failures.append(error)

    def look():
        seen = 0
        while not over.is_set():
            if (folder / FILE).exists():
                found = PackageFile(folder / FILE)
                found.verify()
                if found.manifest.counter < seen:
                    failures.append(f"{seen} became {found.manifest.counter}")
                seen = found.manifest.counter

    threads = [threading.Thread(target=one, args=(place,)) for place in places]
    watcher = threading.Thread(target=look)
    for each in (watcher, *threads):
        each.start()
    for each in threads:
        each.join()
    over.set()
    watcher.join()
    assert failures == []
    assert PackageFile(folder / FILE).manifest.counter == 8
    assert tidy(folder)


def test_folders_that_cannot_be_written(put, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(put(OLD), tmp_path / "file" / "below")
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chmod(shared, 0o777)
    assert "every user can write to it" in refused(put(OLD), shared)
    monkeypatch.setenv("TILESMITH_TRUST_FOLDER", str(shared))
    assert install(put(OLD), shared, RULES).action == "installed"


def test_what_was_verified_is_what_lies_there(put, folder, monkeypatch):
    """The file is read once: one that changes after its check is not seen again."""
    from tilesmith.package import install as module

    place = put(OLD)
    check = module.verify

    def then_swap(package, name):
        check(package, name)
        put(NEW)

    monkeypatch.setattr(module, "verify", then_swap)
    install(place, folder, RULES)
    assert hashlib.sha256((folder / FILE).read_bytes()).digest() == hashlib.sha256(OLD).digest()
