"""`mona demo`, a few steps of it: the next commands that it prints work."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import train_commands
from helpers.wide_phantoms import few_phantoms

from mona_train.engine import first_look


def test_the_demo_leaves_runs_scans_and_references_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mona(*words: str) -> str:
        done = train_commands.mona(tmp_path, *words)
        assert done.code == 0, done.err
        return done.out

    monkeypatch.setattr(first_look, "STEPS", 4)
    monkeypatch.setattr("mona_kernels.native.cores", lambda: 1)  # in this process, whose phantoms are few
    with few_phantoms(train=24, val=1, test=2):
        said = mona("demo", "--steps", "4").splitlines()
    assert said[-1].startswith("wrote demo/demo.png")
    assert 'precision = "32-true"' in (tmp_path / "demo/mona/run.toml").read_text()  # what it was trained in
    masks = {path.name for path in (tmp_path / "demo/references").iterdir()}
    assert len(masks) == 4 and masks == {path.name for path in (tmp_path / "demo/scans").iterdir()}  # 2 test patients
    export, segment = (
        line.removeprefix("Next:").split()[1:] for line in said if line.lstrip().startswith(("Next", "mona"))
    )
    mona(*export)
    (tmp_path / "demo/one").mkdir()
    one = sorted(masks)[0]
    (tmp_path / "demo/scans" / one).rename(tmp_path / "demo/one" / one)
    assert "DSC" in mona(*(word.replace("demo/scans", "demo/one") for word in segment))
    assert "RV" in mona("evaluate", f"demo/masks/{one}", f"demo/references/{one}", "--classes", "1=RV,2=Myo,3=LV")
