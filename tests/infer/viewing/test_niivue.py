"""NiiVue is fetched by the ordinary npm client, checked, and where it cannot be had everything else still works."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from mona_infer.cli.doctor import examine
from mona_infer.viewing import niivue

CODE = b"var niivue = {}"


def archive(name: str = niivue.MEMBER, code: bytes = CODE) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        entry = tarfile.TarInfo(name)
        entry.size = len(code)
        files.addfile(entry, io.BytesIO(code))
    return packed.getvalue()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the library, and a PATH on which there is nothing."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(niivue, "LIBRARY", tmp_path / "vendor" / "niivue.js")
    monkeypatch.setattr(niivue, "SHA256", hashlib.sha256(CODE).hexdigest())
    return tmp_path


def npm(place: Path, packed: bytes | None) -> None:
    """A client that delivers this archive, or fails."""
    (place / "delivered.tgz").write_bytes(packed or b"")
    program = place / "bin" / "npm"
    copy = f"import shutil, sys; shutil.copy({str(place / 'delivered.tgz')!r}, 'niivue-niivue.tgz')"
    body = copy if packed is not None else "import sys; sys.exit('npm error code ENOTFOUND')"
    script = place / "npm.py"
    script.write_text(f"{body}\n")
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{script}'\n")  # a first line with a space would not do
    program.chmod(0o755)


def test_it_is_fetched_once_and_checked(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    npm(place, archive())
    assert niivue.library() is None
    assert niivue.main() == 0 and niivue.library() == CODE
    npm(place, None)
    assert niivue.main() == 0  # nobody is asked again
    assert capsys.readouterr().out == f"fetched NiiVue {niivue.VERSION}\nNiiVue {niivue.VERSION} is there\n"
    assert [p.name for p in niivue.LIBRARY.parent.iterdir()] == ["niivue.js"]


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (archive(code=CODE + b" "), "its SHA-256 is another"),
        (archive(name="../../niivue.js"), "its SHA-256 is another"),
        (b"no archive", "its SHA-256 is another"),
        (None, "npm could not download it"),
    ],
    ids=["changed", "another file", "no archive", "no network"],
)
def test_what_is_not_it_is_thrown_away(
    place: Path, packed: bytes | None, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    npm(place, packed)
    assert niivue.main() == 3
    said = capsys.readouterr().out
    assert reason in said and said.count("\n") == 1 and "-m mona_infer.viewing.niivue" in said
    assert not niivue.LIBRARY.parent.exists()


def test_a_damaged_copy_is_as_good_as_none(place: Path) -> None:
    niivue.LIBRARY.parent.mkdir()
    niivue.LIBRARY.write_bytes(CODE[:-1])
    assert niivue.library() is None
    (found,) = (f for f in examine() if f.part == "NiiVue")
    assert found.state == "missing" and found.remedy.endswith(" -m mona_infer.viewing.niivue")


def test_while_a_wheel_is_built_nothing_but_python_is_needed(tmp_path: Path) -> None:
    """As CMake calls it: isolated, with neither mona nor NumPy, and no npm."""
    copy = tmp_path / "niivue.py"
    copy.write_bytes(Path(niivue.__file__).read_bytes())
    command = [sys.executable, "-I", "-S", copy]
    done = subprocess.run(command, env=os.environ | {"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith(f"NiiVue {niivue.VERSION} was not fetched: npm is not installed; ")


def test_its_licence_is_that_of_this_version() -> None:
    text = niivue.licence()
    assert f"NiiVue {niivue.VERSION}" in text and "Redistributions in binary form must reproduce" in text
