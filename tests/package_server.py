"""A web server of packages in a thread, which misbehaves as it is told."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Site:
    """What the server has, and how it behaves; ``asked`` are its requests: the path and the range that was asked for.

    ``cut`` lists how many bytes the first replies with a body bring before the connection ends, ``statuses`` the
    statuses of the first replies; later ones are whole. ``drip_s`` is the pause after each 1,000 bytes.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    address: str = ""
    ranges: bool = True
    tags: bool = True
    lengths: bool = True
    cut: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    drip_s: float = 0.0
    extra: bytes = b""  # sent after the body, and not counted in its length
    asked: list[tuple[str, str]] = field(default_factory=list)

    def url(self, name: str) -> str:
        return f"{self.address}/{name}"


@contextlib.contextmanager
def serving() -> Iterator[Site]:
    site = Site()
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.partition("?")[0].lstrip("/")
            site.asked.append((name, self.headers.get("Range", "")))
            if site.statuses:
                return self.answer(site.statuses.pop(0), b"")
            if name in site.moved:
                return self.answer(302, b"", {"Location": site.moved[name]})
            data = site.files.get(name)
            if data is None:
                return self.answer(404, b"nothing")
            tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
            more = {"ETag": tag} if site.tags else {}
            asked = re.fullmatch(r"bytes=([0-9]+)-", self.headers.get("Range", ""))
            if site.ranges and asked and self.headers.get("If-Range", tag) == tag:
                begin = int(asked[1])
                if begin >= len(data):
                    return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                more["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
                return self.answer(206, data[begin:], more)
            return self.answer(200, data, more)

        def answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            sent = ({"Content-Length": str(len(data))} if site.lengths else {}) | (headers or {}) | site.headers
            for name, value in sent.items():
                self.send_header(name, value)
            self.end_headers()
            cut = site.cut.pop(0) if site.cut and data else None
            data = data[:cut] if cut is not None else data + site.extra
            for at in range(0, len(data), 1000) if site.drip_s else [0]:
                with contextlib.suppress(OSError):
                    self.wfile.write(data[at : at + 1000] if site.drip_s else data)
                    self.wfile.flush()
                if over.wait(site.drip_s):
                    return

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.address = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield site
        finally:
            over.set()
            server.shutdown()


def until(condition, seconds: float = 20.0) -> None:
    """Wait for a condition; fails when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
