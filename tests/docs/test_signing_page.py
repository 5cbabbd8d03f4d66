"""The page on signing: its commands run one after the other and print what it says; its C compiles and runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pages import DOCS

import tilesmith.runtime
from hostile_packages import MAKER, sample
from package_samples import MANIFEST, package
from package_server import serving
from tilesmith.cli.main import run
from tilesmith.package.files import write
from tilesmith.toolchain.compilers import find_compiler

PAGE = (DOCS / "guide" / "signing.md").read_text()
CSRC = Path(tilesmith.runtime.__file__).parent / "csrc"


def alike(text: str, config: str, address: str) -> list[str]:
    """Without what each run makes anew: keys, fingerprints, places."""
    text = re.sub(r"ed25519:[A-Za-z0-9+/]{43}=", "ed25519:KEY", text)
    text = re.sub(r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:KEY", text)
    text = text.replace(config, "/home/you/.config").replace(address, "https://example.com")
    return sorted(text.splitlines())  # stdout and stderr come one after the other here


def test_the_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "packages").mkdir()
    path = tmp_path / "packages" / "boo-x86_64-v4-2-zen5.kdb"
    write(path, package(3, replace(MANIFEST, name="boo")))
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", PAGE, re.M)
    assert len(commands) == 10
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving() as site:
        for command, expected in commands:
            site.files[path.name] = path.read_bytes()
            words = shlex.split(command.replace("https://example.com", site.address))
            assert run(words[1:]) == 0, command
            printed = capsys.readouterr()
            said = alike(printed.out + printed.err, str(tmp_path / "config"), site.address)
            assert said == alike(expected, str(tmp_path / "config"), site.address), command


@pytest.mark.needs_compiler
def test_the_c_program(tmp_path):
    (block,) = re.findall(r"^```c\n(.*?)^```", PAGE, re.M | re.S)
    head, body = block.split("\n\n", 1)
    key = ", ".join(map(str, MAKER.public_key().public_bytes_raw()))
    (tmp_path / "main.c").write_text(
        f"{head}\n#include <stdio.h>\n#include <stdlib.h>\nstatic const uint8_t vendor_key[32] = {{{key}}};\n"
        "static void die(const char *text) {\n  puts(text);\n  exit(1);\n}\n\nint main(void) {\n"
        f"{body}  ts_package_close(package);\n  return 0;\n}}\n"
    )
    names = ("decode", "ed25519", "inflate", "lzma", "package", "sha256", "sha512", "signature", "image", "pool", "run",
             "wait", "cuda", "cuda_run", "error")  # fmt: skip
    flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}"]
    sources = [str(CSRC / f"ts_{name}.c") for name in names]
    subprocess.run(
        [*find_compiler().command, *flags, "main.c", *sources, "-lpthread", "-ldl", "-lm", "-o", "main"],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    for data, said in ((sample(), ""), (sample()[:416] + bytes(64) + sample()[480:], "damaged")):
        (tmp_path / "boo.kdb").write_bytes(data)
        done = subprocess.run([tmp_path / "main"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, said in done.stdout) == (int(bool(said)), True), done.stdout
