"""An agent that needs a browser: a picture of a page by headless Chromium, or a stand-in where there is none.

It also notes when it was alive, so that the demo can prove that there were never three of them.
"""

import json
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
FLAGS = (
    "--headless",
    "--no-sandbox",  # only local pages of ours, and root has no sandbox
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=640,400",
)


def main() -> None:
    page, picture = Path(sys.argv[-2]), Path(sys.argv[-1])
    began = time.time()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser:
        by_browser(browser, page, picture)
    else:
        stand_in(picture)
    with (picture.parent / "alive.ndjson").open("a") as file:
        line = {"page": page.name, "from": began, "to": time.time(), "browser": bool(browser)}
        file.write(json.dumps(line) + "\n")
    print(f"{picture.name}: {picture.stat().st_size} bytes, by {browser or 'a stand-in, no Chromium here'}")


def by_browser(browser: str, page: Path, picture: Path) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        subprocess.run(
            [
                browser,
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--screenshot={picture}",
                page.resolve().as_uri(),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )


def stand_in(picture: Path) -> None:
    """One second of work and a grey PNG of 64 by 40."""
    time.sleep(1)
    rows = zlib.compress((b"\0" + b"\x80" * 64) * 40)
    parts = ((b"IHDR", struct.pack(">IIBBBBB", 64, 40, 8, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    with picture.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for name, body in parts:
            file.write(
                struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
            )


if __name__ == "__main__":
    main()
