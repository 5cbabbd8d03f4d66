"""One HTTP request that ends by a deadline and reads no more than it may: redirects, headers and body together."""

from __future__ import annotations

import http.client
import socket
import time
import urllib.request
from contextlib import suppress
from typing import Any

_CHUNK = 1 << 16


class Request:
    """``run`` it in a thread, then take the ``result``; ``give_up`` from another thread makes it end."""

    def __init__(self, url: str, seconds: float, most: int) -> None:
        self._url, self._seconds, self._most = url, seconds, most
        self._deadline = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._given_up = False
        self._data = b""
        self._error: OSError | ValueError | None = None

    def run(self) -> None:
        try:
            self._data = self._read()
        except (OSError, ValueError) as error:
            self._error = error
        except Exception as error:  # what a server sends makes http.client fail in many ways
            self._error = OSError(f"{type(error).__name__}: {error}")

    def result(self) -> bytes:
        if self._error is not None:
            raise self._error
        return self._data

    def give_up(self) -> None:
        self._given_up = True
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def connected(self, to: socket.socket) -> None:
        """A connection that this request has opened, the first or one that it was sent on to."""
        self._sockets.append(to)
        if self._given_up:
            self.give_up()

    def _read(self) -> bytes:
        parts, size = [], 0
        with _opener(self).open(self._url, timeout=self._seconds) as reply:
            length = reply.headers.get("Content-Length", "")
            if length.isascii() and length.isdecimal() and (len(length) > 18 or int(length) > self._most):
                raise ValueError(f"it holds {length[:30]} bytes, more than {self._most}")
            while chunk := reply.read1(_CHUNK):
                size += len(chunk)
                if size > self._most:
                    raise ValueError(f"it holds more than {self._most} bytes")
                if time.monotonic() > self._deadline:
                    raise TimeoutError(f"it did not come within {self._seconds:.1f} s")
                parts.append(chunk)
        if length.isdecimal() and size < int(length):
            raise OSError(f"it broke off after {size} of {length} bytes")
        return b"".join(parts)


def _opener(request: Request) -> urllib.request.OpenerDirector:
    """For http and https alone, wherever a redirect leads; the proxies are those of the environment."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(), urllib.request.UnknownHandler(), urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(), urllib.request.HTTPErrorProcessor(), _Http(request), _Https(request),
    ):  # fmt: skip
        opener.add_handler(handler)
    return opener


class _Http(urllib.request.HTTPHandler):
    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request

    def http_open(self, req: urllib.request.Request) -> Any:
        owner = self._request

        class Connection(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                owner.connected(self.sock)

        return self.do_open(Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request

    def https_open(self, req: urllib.request.Request) -> Any:
        owner = self._request

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                owner.connected(self.sock)

        return self.do_open(Connection, req)
