"""Headless Chromium, driven from Python through tests/browser/drive.mjs; tests skip by name where a part is missing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

DRIVER = Path(__file__).parents[1] / "browser" / "drive.mjs"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def start() -> Browser:
    """A browser, or a skip that says what is missing."""
    chromium = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    node = shutil.which("node")
    if chromium is None:
        pytest.skip("Chromium is not installed, which tests of pages need")
    if node is None or not (DRIVER.parent / "node_modules" / "playwright-core").is_dir():
        pytest.skip("playwright-core is not installed: `npm ci --prefix tests/browser` (`make test` does it)")
    started = Browser(node, chromium)
    if not started.version:  # too old a Node.js, a sandbox without shared memory: nothing to do with the pages
        pytest.skip(f"{chromium} could not be started by playwright-core")
    return started


class Browser:
    def __init__(self, node: str, chromium: str) -> None:
        command = [node, str(DRIVER), chromium]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.version = self._process.stdout.readline()  # empty if it could not start

    def __call__(self, command: str, **values: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **values}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the browser went away during {command!r}"
        found = json.loads(line)
        assert "error" not in found, f"{command} {values}: {found['error']}"
        return found["answer"]

    def open(self, page: Path, *, plain: bool = False, **options: Any) -> None:
        """Open a page of mona from the disk and wait until it shows its scan."""
        self("open", url=page.resolve().as_uri() + ("#plain" if plain else ""), **options)
        self("wait", selector="html[data-ready]")

    def press(self, *keys: str) -> None:
        for key in keys:
            self("key", key=key)

    def picture(self, path: Path, selector: str | None = None) -> NDArray[np.uint8]:
        """What is on the screen: rows columns 3."""
        self("shot", path=str(path), selector=selector)
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(120)  # beside other work, even ending takes long
