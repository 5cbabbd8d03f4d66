"""Headless Chromium for the tests and the benchmark of reports: what a page says, draws and looks like."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# As root, without a GPU, and without a word to any network.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync",
)  # fmt: skip
DEADLINE_MS = 30_000.0
READY = "document.body.dataset.ready === 'yes'"
DRAWN = "[...document.querySelectorAll('.plot')].map((plot) => [plot.id, plot.dataset.drawn])"


def chromium() -> str:
    """The program; empty if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""


@dataclass
class Opened:
    """A page in the browser, with everything that its console and the network have seen."""

    page: Any
    seconds: float = 0.0
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def drawn(self) -> dict[str, str]:
        """``yes``, ``empty`` (there is nothing to draw) or ``no``, by plot."""
        return dict(self.page.evaluate(DRAWN))

    def blank(self) -> list[str]:
        """The plots that say that they are drawn, and whose canvas has one colour alone."""
        code = """[...document.querySelectorAll(".plot[data-drawn=yes] canvas")].filter((canvas) => {
          const bytes = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          for (let at = 4; at < bytes.length; at += 4) if (bytes[at + 3] !== bytes[3]) return false;
          return true;
        }).map((canvas) => canvas.closest(".plot").id)"""
        return list(self.page.evaluate(code))

    def violations(self) -> list[str]:
        """What axe-core finds, one line each."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [f"{each['id']}: {each['help']} ({each['nodes'][0]['html'][:200]})" for each in found]


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A browser with a profile of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            yield running
        finally:
            running.close()


@contextlib.contextmanager
def opened(running: Any, file: Path, *, width: int = 1360, dark: bool = False) -> Iterator[Opened]:
    """The page of ``file`` when all is drawn; ``seconds`` from the moment it is asked for."""
    context = running.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    context.set_default_timeout(DEADLINE_MS)
    try:
        page = context.new_page()
        found = Opened(page)
        page.on("console", lambda message: found.messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: found.messages.append(f"error: {error}"))
        page.on("request", lambda request: found.requests.append(request.url))
        began = time.monotonic()
        page.goto(file.resolve().as_uri())
        page.wait_for_function(READY)
        found.seconds = time.monotonic() - began
        yield found
    finally:
        context.close()
