"""NiiVue, the library that draws volumes in a browser: fetched with npm, checked, and found again.

Its code is no part of this repository.  `python mona_infer/viewing/niivue.py` fetches it (so do `make install` and the
building of a wheel), which is why this file imports nothing but the standard library when it starts.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

VERSION = "0.69.0"
SHA256 = "47b896b77ec4a5be3ef1949c33ad393b6f45629921f326c279000bcf51bdb4af"
MEMBER = "package/dist/niivue.umd.js"  # of npm's archive: defines the global `niivue`
LIBRARY = Path(__file__).parent / "vendor" / f"niivue-{VERSION}.umd.js"
LICENCE = Path(__file__).parent / "page" / "niivue-licence.txt"  # its archive has none
LONGEST = 90  # seconds for npm: whoever installs without a network should not wait long


def library() -> bytes | None:
    """NiiVue's JavaScript; None where it was not fetched, or is not what was fetched."""
    try:
        code = LIBRARY.read_bytes()
    except OSError:
        return None
    return code if _is_right(code) else None


def licence() -> str:
    """What must accompany every copy of it, and a page holds a copy."""
    return LICENCE.read_text(encoding="utf-8")


@cache
def packed() -> bytes | None:
    """`library()` as gzip, a third as large, for a page that unpacks it with DecompressionStream."""
    code = library()
    return None if code is None else gzip.compress(code, 9, mtime=0)


def fetch_command() -> str:
    """What a user types to fetch it."""
    from mona_infer.system.optional_parts import this_python

    return f"{this_python()} -m mona_infer.viewing.niivue"


def fetch() -> None:
    """Put NiiVue in its place; a RuntimeError says in one sentence why that was not possible."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        # One retry: npm's usual two take a minute and a half where there is no network.
        quick = {"npm_config_fetch_retries": "1", "npm_config_fetch_retry_mintimeout": "1000"}
        command = [npm, "pack", f"@niivue/niivue@{VERSION}", "--silent", "--ignore-scripts"]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | quick,
                capture_output=True,
                text=True,
                timeout=LONGEST,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"npm did not answer within {LONGEST} seconds") from None
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode != 0 or len(archives) != 1:
            raise RuntimeError(f"npm could not download it (exit code {done.returncode})")
        code = _member(archives[0])
    if not _is_right(code):
        raise RuntimeError(f"what npm downloaded is not NiiVue {VERSION}: its SHA-256 is another; it was thrown away")
    LIBRARY.parent.mkdir(exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=LIBRARY.parent, prefix=".")
    with os.fdopen(descriptor, "wb") as file:
        file.write(code)
    Path(temporary).chmod(0o644)
    Path(temporary).replace(LIBRARY)  # two installations at a time leave a whole file


def _member(archive: Path) -> bytes:
    """The one file that is needed; nothing else of the archive is unpacked."""
    try:
        with tarfile.open(archive) as files:
            found = files.extractfile(MEMBER)
            return b"" if found is None else found.read()
    except (tarfile.TarError, KeyError, OSError):
        return b""


def _is_right(code: bytes) -> bool:
    return hashlib.sha256(code).hexdigest() == SHA256


def main() -> int:
    """Fetch it unless it is there; never more than one line, for `make install` to show."""
    if library() is not None:
        print(f"NiiVue {VERSION} is there")
        return 0
    try:
        fetch()
    except (RuntimeError, OSError) as error:
        command = "python -m mona_infer.viewing.niivue"  # while a wheel is built, the rest of mona is not there
        print(f"NiiVue {VERSION} was not fetched: {error}; pages show plain 2-D slices until you run {command}")
        return 3
    print(f"fetched NiiVue {VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
