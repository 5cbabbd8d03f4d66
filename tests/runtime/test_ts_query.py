"""``ts-query``: the machine's targets, the packages of an index that are for it, packages that are whole."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import replace

import pytest

from machine_library import CSRC, folder, run, ts_query
from package_samples import MANIFEST, package
from tilesmith import env
from tilesmith.package.form import encode, with_signature
from tilesmith.targets.cpu import cpu_target
from tilesmith.targets.detect import host_target
from tilesmith.toolchain.compilers import find_compiler

pytestmark = pytest.mark.xdist_group("machine")  # which builds the library and the program once
HERE = "x86_64-v4:4:zen5"
SIGNATURE = f"signed {'ab' * 32} {'01' * 64}\n"


def query(*words, environment=None) -> tuple[int, list[str], str]:
    done = subprocess.run(
        [str(ts_query()), *map(str, words)],
        capture_output=True,
        text=True,
        env=environment or {},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def line(target, name="boo", counter=1, size=4096):
    digest = hashlib.sha256(f"{target} {name} {counter}".encode()).hexdigest()
    return f"{target} {name} {counter} {digest} {size} {name}-{target.replace(':', '-')}.{counter}.kdb"


def index(*lines) -> str:
    lines = sorted(lines, key=lambda text: (text.split()[1], text.split()[0], int(text.split()[2])))
    return "".join(f"{each}\n" for each in ("tilesmith packages 1", *lines, f"end {len(lines)}"))


def test_targets_of_this_machine():
    cap = {name: os.environ[name] for name in (env.CPU_LEVEL.name,) if name in os.environ}
    assert query("targets", environment=cap) == query(environment=cap) == (0, [host_target().name], "")
    lower = query("targets", environment={env.CPU_LEVEL.name: "X86_64-V2"})[1]
    assert lower == [cpu_target("x86_64-v2", host_target().cores, card=host_target().card).name]
    code, out, error = query(environment={env.CPU_LEVEL.name: "v3"})
    assert (code, out, error) == (2, [], "ts-query: TILESMITH_CPU_LEVEL: 'v3' is no level of x86-64 CPUs\n")
    missing = query(environment={env.LIBCUDA.name: "/nowhere/libcuda.so"} | cap)
    assert missing[:2] == (0, [host_target().name])
    assert "GPUs are left out: no CUDA driver: /nowhere/libcuda.so" in missing[2]


@pytest.mark.needs_root
@pytest.mark.needs_linux
def test_a_static_program_in_an_empty_folder(tmp_path):
    """No /proc, no /sys, no library, no environment."""
    program = tmp_path / "ts-query"
    above = ("ts_library", "ts_reference")  # half of the runtime, which the program does not need
    files = [*CSRC.glob("tools/ts_*.c"), *(file for file in CSRC.glob("ts_*.c") if not file.name.startswith(above))]
    command = [*find_compiler().command, "-std=c11", "-O0", "-static", "-w", f"-I{CSRC}", *map(str, files)]
    run([*command, "-o", str(program), "-lpthread", "-ldl"])
    done = subprocess.run(
        ["chroot", str(tmp_path), "/ts-query"],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    arch, cores, card = done.stdout.strip().split(":")
    host = host_target()
    assert (done.returncode, done.stderr) == (0, "")
    assert (arch, card) == (host.arch if env.CPU_LEVEL.get() is None else arch, host.card)
    assert int(cores) >= host.cores


def test_packages_for_a_machine(tmp_path):
    place = tmp_path / "index.txt"
    mine, other = line(HERE), line("x86_64-v4:8:zen5")
    place.write_text(index(mine, other, line(HERE, counter=10), line(HERE, counter=9), line("sm_80:108", "gpu")))
    newest = line(HERE, counter=10)
    assert query("pick", place, "--target", HERE) == (0, [f"exact {HERE} {newest}"], "")
    code, out, error = query("pick", place, "--target", "x86_64-v4:6:zen5")
    assert (code, out) == (1, [])
    assert error == (
        "ts-query: no package is for x86_64-v4:6:zen5; the nearest is for x86_64-v4:8:zen5: "
        f"{other.split()[-1]} (--nearest takes it)\n"
    )
    assert query("pick", place, "--target", "x86_64-v4:6:zen5", "--nearest")[1] == [f"nearest x86_64-v4:6:zen5 {other}"]
    # A processor runs the levels below its own, and none above.
    assert query("pick", place, "--target", "x86_64-v4-bf16:4:zen5", "--nearest")[1] == [
        f"nearest x86_64-v4-bf16:4:zen5 {newest}"
    ]
    assert query("pick", place, "--target", "x86_64-v3:4:zen5", "--nearest") == (
        1, [], "ts-query: no package is for x86_64-v3:4:zen5\n",
    )  # fmt: skip
    both = query("pick", place, "--target", HERE, "--target", "sm_80:108:a10g", "--nearest")
    assert both[1] == [f"exact {HERE} {newest}", f"nearest sm_80:108:a10g {line('sm_80:108', 'gpu')}"]
    assert query("pick", place, "--target", HERE, "--name", "gpu")[:2] == (1, [])
    named = index(line(HERE, "a"), line(HERE, "b"), line("from-later:1:x", "a"))
    place.write_text(named + SIGNATURE)
    assert query("pick", place, "--target", HERE)[1] == [f"exact {HERE} {line(HERE, name)}" for name in "ab"]
    assert query("pick", place, "--target", HERE, "--name", "b")[1] == [f"exact {HERE} {line(HERE, 'b')}"]
    place.write_text(index())
    assert query("pick", place, "--target", HERE)[:2] == (1, [])


GOOD = index(line(HERE), line("sm_80:108:a10g", size=2**30))
FIRST, SECOND = GOOD.splitlines()[1:3]
BAD = {
    "empty": "",
    "another version": GOOD.replace("packages 1", "packages 2"),
    "no end": GOOD[: GOOD.index("end")],
    "cut": GOOD[:-1],
    "cut in a line": GOOD[:100],
    "miscounted": GOOD.replace("end 2", "end 3"),
    "counted with a zero": GOOD.replace("end 2", "end 02"),
    "a line too few": GOOD.replace(FIRST + "\n", ""),
    "out of order": GOOD.replace(f"{FIRST}\n{SECOND}", f"{SECOND}\n{FIRST}"),
    "twice": GOOD.replace(FIRST, f"{FIRST}\n{FIRST}").replace("end 2", "end 3"),
    "one file twice": GOOD.replace(SECOND.split()[-1], FIRST.split()[-1]),
    "two spaces": GOOD.replace(" boo ", "  boo ", 1),
    "a tab": GOOD.replace(" boo ", "\tboo ", 1),
    "CRLF": GOOD.replace("\n", "\r\n"),
    "not ASCII": GOOD.replace("boo", "bö", 1),
    "a NUL": GOOD.replace("boo", "b\0o", 1),
    "seven fields": GOOD.replace(FIRST, f"{FIRST} more"),
    "a capital in the name": GOOD.replace(" boo ", " Boo ", 1),
    "a counter with a zero": GOOD.replace(" boo 1 ", " boo 01 ", 1),
    "a counter over 64 bits": GOOD.replace(" boo 1 ", f" boo {2**64} ", 1),
    "a negative counter": GOOD.replace(" boo 1 ", " boo -1 ", 1),
    "a short digest": GOOD.replace(FIRST.split()[3], FIRST.split()[3][1:]),
    "a digest in capitals": GOOD.replace(FIRST.split()[3], FIRST.split()[3].upper()),
    "too small": GOOD.replace(" 4096 ", " 511 "),
    "too large": GOOD.replace(f" {2**30} ", f" {2**30 + 1} "),
    "another folder": GOOD.replace(FIRST.split()[-1], "../" + FIRST.split()[-1]),
    "a hidden file": GOOD.replace(FIRST.split()[-1], "." + FIRST.split()[-1]),
    "an option": GOOD.replace(FIRST.split()[-1], "-" + FIRST.split()[-1]),
    "another kind of file": GOOD.replace(FIRST.split()[-1], "boo.sh"),
    "a long target": GOOD.replace(HERE, "x" * 96),
    "half a signature": GOOD + SIGNATURE[:-3] + "\n",
    "a signature without a key": GOOD + f"signed {'01' * 64}\n",
    "something behind the signature": GOOD + SIGNATURE + "more\n",
    "two ends": GOOD + "end 2\n",
    "over 1 MiB": GOOD + "x" * 2**20,
}


@pytest.mark.parametrize("name", BAD)
def test_an_index_that_breaks_a_rule_is_refused(name, tmp_path):
    (tmp_path / "index").write_text(BAD[name], newline="")
    code, out, error = query("pick", tmp_path / "index", "--target", HERE, "--nearest")
    assert (code, out, error.count("\n")) == (2, [], 1), error
    (tmp_path / "index").write_text(GOOD)
    assert query("pick", tmp_path / "index", "--target", HERE)[0] == 0


def test_a_package_is_checked(tmp_path):
    place = tmp_path / "a.kdb"
    whole = encode(package(manifest=replace(MANIFEST, counter=2**64 - 1)))
    place.write_bytes(whole)
    digest, identity = hashlib.sha256(whole).hexdigest(), hashlib.sha256(whole[:384]).hexdigest()
    fields = f"{MANIFEST.target} test {2**64 - 1} {digest} {len(whole)} {identity} - -"
    assert query("check", place) == (0, [fields], "")
    signed = with_signature(whole, b"\x0a" * 32, b"\xf0" * 64)
    place.write_bytes(signed)
    words = query("check", place)[1][0].split()
    assert words[3:] == [hashlib.sha256(signed).hexdigest(), str(len(signed)), identity, "0a" * 32, "f0" * 64]
    place.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for path in (place, tmp_path, tmp_path / "none", "/dev/null"):
        code, out, error = query("check", path)
        assert (code, out, error.count("\n")) == (2, [], 1), error
        assert str(path) in error


@pytest.mark.parametrize(
    "words",
    [["none"], ["check"], ["pick"], ["pick", "a", "b"], ["pick", "--name"], ["pick", "x", "--target", "x86"], ["-h"]],
)
def test_bad_words(words):
    code, out, error = query(*words)
    assert (code, out, error.count("\n")) == (2, [], 1)


@pytest.mark.needs_dev_full
def test_output_that_cannot_be_written():
    with open("/dev/full", "w") as full:
        done = subprocess.run([str(ts_query())], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("cannot be written")) == (2, 1)


@pytest.mark.needs_cmake
def test_cmake_installs_it(tmp_path):
    root = CSRC.parents[3]
    made = folder() / "cmake"
    run(["cmake", "-S", str(root), "-B", str(made), "-DTILESMITH_PYTHON=OFF", "-DCMAKE_BUILD_TYPE=Debug"])
    run(["cmake", "--build", str(made), "--parallel", "2"])
    run(["cmake", "--install", str(made), "--component", "tools", "--prefix", str(tmp_path)])
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == ["bin/ts-query"]
