"""`mona demo`, a few steps of it: the next commands that it prints work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MONA = Path(sys.executable).with_name("mona")


def test_the_demo_leaves_runs_scans_and_references_to_go_on_with(tmp_path: Path) -> None:
    def mona(*words: str) -> str:
        done = subprocess.run([MONA, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = mona("demo", "--steps", "4").splitlines()
    assert said[-1].startswith("wrote demo/demo.png")
    masks = {path.name for path in (tmp_path / "demo/references").iterdir()}
    assert len(masks) == 16 and masks == {path.name for path in (tmp_path / "demo/scans").iterdir()}  # 8 test patients
    export, segment = (
        line.removeprefix("Next:").split()[1:] for line in said if line.lstrip().startswith(("Next", "mona"))
    )
    mona(*export)
    (tmp_path / "demo/one").mkdir()
    one = sorted(masks)[0]
    (tmp_path / "demo/scans" / one).rename(tmp_path / "demo/one" / one)
    assert "DSC" in mona(*(word.replace("demo/scans", "demo/one") for word in segment))
    assert "RV" in mona("evaluate", f"demo/masks/{one}", f"demo/references/{one}", "--classes", "1=RV,2=Myo,3=LV")
