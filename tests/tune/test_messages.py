"""Frames and notes survive what pipes and processes do to them."""

import io
import subprocess
import sys

import pytest

from tilesmith.measure.timing import Timing
from tilesmith.tune.crash_report import CrashReport
from tilesmith.tune.messages import (
    Load,
    Loaded,
    Race,
    Raced,
    Ready,
    Refused,
    Setup,
    Unload,
    frame,
    read_request,
    take_reply,
)  # fmt: skip

TIMING = Timing(10.5, 0.25, 9, "m", 10.25, 2)
REQUESTS = [
    Setup("problem", 7, "/tmp/oracle.npz"), Load("a mr=4", b"\0\xff plan", ("/x.so",)),
    Race(("a", "b"), 7, 0.5, 2, None), Race(("a",), 7, 0.5, 2, 1.1), Unload(("a",)),
]  # fmt: skip
REPLIES = [Ready(1.5), Loaded(0.25, 1.0, TIMING, 3.5), Refused("wrong", 7.0, 1.0), Refused("x"), Raced({"a": TIMING})]


def test_requests_arrive_as_they_were_sent():
    stream = io.BytesIO(b"".join(map(frame, REQUESTS)))
    assert [read_request(stream) for _ in REQUESTS] == REQUESTS
    assert read_request(stream) is None


@pytest.mark.parametrize("length", [0, 3, 4, 10])
def test_a_request_cut_short_is_the_end(length):
    assert read_request(io.BytesIO(frame(REQUESTS[1])[:length])) is None


def test_replies_arrive_byte_by_byte():
    buffer, found = bytearray(), []
    for byte in b"".join(map(frame, REPLIES)):
        buffer.append(byte)
        reply = take_reply(buffer)
        if reply is not None:
            found.append(reply)
    assert found == REPLIES
    assert not buffer


def test_a_note_is_seen_by_who_maps_the_same_file(tmp_path):
    mine, theirs = CrashReport(tmp_path / "note"), CrashReport(tmp_path / "note")
    assert mine.read() == ""
    for text in ("c_dense mr=14 nv=2", "", "ä" * 5000):
        theirs.write(text)
        assert mine.read().rstrip("�") == text[: len(mine.read().rstrip("�"))]
    theirs.write("short")
    assert mine.read() == "short"


def test_a_worker_whose_session_is_over_ends_without_a_word(tmp_path):
    def worker(report):
        return subprocess.Popen(
            [sys.executable, "-m", "tilesmith.tune.worker", str(report)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    assert worker(tmp_path / "gone" / "report").communicate(timeout=60) == (b"", b"")
    left = worker(tmp_path / "report")
    left.stdout.close()
    left.stdin.write(frame(Race(("a",), 7, 0.5, 2, None)))
    left.stdin.close()
    assert (left.wait(60), left.stderr.read()) == (0, b"")
    left.stderr.close()
