"""Fuzzes the C decoder of plans and every reader of ``readers.py``; a finding is written down and fails the run.

Inputs are mutated from the seeds and ``corpus/``; one that reaches a line of Python (an edge of C) that no other has
reached joins them. ``--grow`` keeps those in the corpus.

    python tests/fuzz/fuzz.py [--seconds 600] [--seed N] [--only NAME] [--findings FOLDER] [--grow] [--json FILE]
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
PATIENCE_S = 10  # of this process's own time, watched line by line, for one input
TOKENS = (
    b"0", b"-1", b"1", b"99999999999999999999", b"1e999", b"nan", b"-inf", b"0x10", b"9" * 5000, b"\xd9\xa3", b"\0",
    b"\r", b"\n", b"\n\n", b'"', b"'", b"[" * 3000, b"{" * 3000, b"=", b";", b",", b":", b"x", b"-", b"_", b" ", b"#",
    b"\xff", b"\xed\xa0\x80", b"true", b"null", b"[[choice]]", b"1.5", b"NHWC", b"fp32", b"bf16", b"..", b"/", b"*",
)  # fmt: skip
SEPARATORS = (b";", b",", b"=", b" ", b"\n", b"x", b"-", b":", b'"')


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=600.0, help="for each target")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", help="one target: c-plan, or a reader's name")
    options.add_argument("--findings", type=Path, default=Path("build/fuzz"), help="where inputs that fail are kept")
    options.add_argument("--grow", action="store_true", help="keep new inputs in the corpus")
    options.add_argument("--json", type=Path, help="add the figures to this file")
    given = options.parse_args()
    from readers import readers

    names = ["c-plan", *(reader.name for reader in readers())]
    if given.only and given.only not in names:
        options.error(f"--only is one of {', '.join(names)}")
    failed = 0
    for name in [given.only] if given.only else names:
        reader = next((each for each in readers() if each.name == name), None)
        if reader is None:
            told = fuzz_decoder(given.seconds, given.seed, given.findings)
        else:
            told = fuzz_reader(reader, given.seconds, given.seed, given.findings, given.grow)
        failed += bool(told["findings"])
        print(json.dumps({"target": name, **told}), flush=True)
        if given.json:
            document = json.loads(given.json.read_text()) if given.json.exists() else {}
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            document[name] = {"date": now, "load": round(os.getloadavg()[0], 1), **told}
            given.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if failed else 0


def fuzz_decoder(seconds: float, seed: int, findings: Path) -> dict[str, Any]:
    """The C decoder, with sanitizers."""
    with tempfile.TemporaryDirectory(prefix="tilesmith-fuzz-") as folder:
        built = subprocess.run([HERE / "build.sh", folder], capture_output=True, text=True, check=False)
        if built.returncode:
            return {"findings": [f"it does not build: {built.stderr[-2000:]}"]}
        corpus = Path(folder) / "corpus"
        shutil.copytree(CORPUS / "plan", corpus)
        command = [f"{folder}/decoder", str(seconds), str(seed), str(corpus)]
        if built.stdout.startswith("libFuzzer"):
            command = [f"{folder}/decoder", f"-max_total_time={int(seconds)}", f"-seed={seed + 1}", "-max_len=4096"]
            command += ["-runs=0"] * (seconds == 0) + [str(corpus)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        wrong = []
        if done.returncode:
            wrong.append((done.stderr or done.stdout)[-3000:])
            for crash in Path(folder).glob("crash*"):
                wrong.append(kept(findings, "c-plan", crash.read_bytes()))
        said = (done.stdout or done.stderr).strip().splitlines()
        return {"engine": built.stdout.strip(), "seconds": seconds, "said": said[-1] if said else "", "findings": wrong}


def fuzz_reader(reader: Any, seconds: float, seed: int, findings: Path, grow: bool) -> dict[str, Any]:
    from readers import refusal_of, seeds_of

    rng, lines = random.Random(f"{seed} {reader.name}"), set[tuple[str, int]]()
    wrong: dict[str, str] = {}
    pool: list[bytes] = []
    runs = fresh = 0

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no end after {PATIENCE_S} s")

    signal.signal(signal.SIGVTALRM, late)
    with tempfile.TemporaryDirectory(prefix="tilesmith-fuzz-") as name:
        folder = Path(name)

        def reaches_more(data: bytes) -> bool:
            before = len(lines)
            signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE_S)
            sys.settrace(lambda frame, event, value: local(frame, lines) if is_ours(frame) else None)
            try:
                refusal = refusal_of(reader, data, folder)
            finally:
                sys.settrace(None)
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            kind = refusal.partition(":")[0] + refusal[-40:] if refusal else ""
            if refusal and kind not in wrong and len(wrong) < 20:
                wrong[kind] = f"{refusal[:300]} ({kept(findings, reader.name, data)})"
            return len(lines) > before

        for data in seeds_of(reader, CORPUS):
            reaches_more(data)
            pool.append(data)
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            data = mutated(rng, pool)
            runs += 1
            if reaches_more(data) and len(data) < 20_000:
                pool.append(data)
                fresh += 1
                if grow and len(data) < 2000:
                    kept(CORPUS, reader.name, data)
    return {
        "seconds": seconds,
        "runs": runs,
        "new_inputs": fresh,
        "lines": len(lines),
        "findings": list(wrong.values()),
    }


def is_ours(frame: FrameType) -> bool:
    return "/tilesmith/" in frame.f_code.co_filename


def local(frame: FrameType, lines: set[tuple[str, int]]) -> Any:
    code = frame.f_code.co_filename
    lines.add((code, frame.f_lineno))

    def trace(frame: FrameType, event: str, value: Any) -> Any:
        lines.add((code, frame.f_lineno))
        return trace

    return trace


def mutated(rng: random.Random, pool: list[bytes]) -> bytes:
    data = bytearray(rng.choice(pool))
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(data) + 1), rng.randint(1, 16)
        match rng.randrange(8):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[at % len(data)] = rng.randrange(256)
            case 2:
                data[at:at] = rng.choice(TOKENS)
            case 3:
                del data[at : at + length]
            case 4:
                data[at : at + length] = rng.choice(TOKENS)
            case 5:
                other = rng.choice(pool)
                begin = rng.randrange(len(other) + 1)
                data[at : at + length] = other[begin : begin + rng.randint(1, 64)]
            case 6:  # fields change places, go, or come twice
                separator = rng.choice(SEPARATORS)
                fields = bytes(data).split(separator)
                one, two = rng.randrange(len(fields)), rng.randrange(len(fields))
                match rng.randrange(4):
                    case 0:
                        fields[one], fields[two] = fields[two], fields[one]
                    case 1:
                        del fields[one]
                    case 2:
                        fields.insert(two, fields[one])
                    case _:
                        fields[one] = rng.choice(TOKENS)
                data = bytearray(separator.join(fields))
            case _:
                digits = [i for i, byte in enumerate(data) if 48 <= byte < 58]
                if digits:
                    place = rng.choice(digits)
                    data[place : place + 1] = rng.choice((b"0", b"1", b"9", b"-1", b"65536", b"2147483648", b"1" * 25))
    return bytes(data)


def kept(folder: Path, name: str, data: bytes) -> str:
    """Write an input down; returns where."""
    path = folder / name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    sys.exit(main())
