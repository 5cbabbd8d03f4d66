"""The pictures of the page on reports, docs/images/report-*.png, from a real report.

tilesmith report RESULTS DATABASE -o report.html
python benchmarks/report_pictures.py report.html top roofline ratios
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "report"))
from browser import browser, opened

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 1180
# The name of a picture, in dark colours or not, and the parts of the page that it shows, from the first to the last.
PICTURES = {
    "top": (False, ("h1", ".figures", ".words")),
    "roofline": (False, (".panel:has(#roofline)",)),
    "ratios": (True, (".panel:has(#groups)", ".panel:has(#every)")),
    "search": (False, (".panel:has(#facts)", ".pair:has(#curve)")),
    "slices": (True, (".panel:has(#slices)", ".panel:has(#parallel)")),
    "changes": (False, (".figures", ".words", ".panel:has(#every)")),
}


def main(file: Path, names: list[str]) -> None:
    with browser() as running:
        for name in names:
            dark, parts = PICTURES[name]
            with opened(running, file, width=WIDTH, dark=dark) as seen:
                seen.page.add_style_tag(content=".top { position: static !important }")
                boxes = [seen.page.locator(part).first.bounding_box() for part in parts]
                top, bottom = min(box["y"] for box in boxes) - 10, max(box["y"] + box["height"] for box in boxes) + 10
                clip = {"x": 10, "y": top, "width": WIDTH - 20, "height": bottom - top}
                picture = Image.open(io.BytesIO(seen.page.screenshot(full_page=True, clip=clip)))
                small = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
                small.save(IMAGES / f"report-{name}.png", optimize=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: report_pictures.py REPORT {'|'.join(PICTURES)}...")
    main(Path(sys.argv[1]), sys.argv[2:])
