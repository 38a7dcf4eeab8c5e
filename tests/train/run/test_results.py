"""The table at the end of a run."""

from __future__ import annotations

import pytest

from mona_infer.task import LabelClass, Task
from mona_train.run.results import print_measured


def test_eight_classes_fit_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ["Myo", "LA", "LV", "RA", "RV", "AAo", "PA"]
    task = Task("heart", tuple(LabelClass(i, name, (0, 0, 0)) for i, name in enumerate(["background", *names])))
    entry = {"dsc": 0.7784, "asd": 113.024}
    report = {"classes": dict.fromkeys(names[:-1], entry) | {"PA": {"dsc": 0.0, "asd": None}}, **entry}
    print_measured({"validation, last": report, "validation, best": report, "test, best": report}, task)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
    assert all(rows[name] == 3 * ["0.778", "(113.02)"] for name in (*names[:-1], "mean"))
    assert rows["PA"] == 3 * ["0.000", "(-)"]


@pytest.mark.parametrize("width", [40, 50, 60])
def test_a_narrow_terminal_breaks_lines_but_no_number_and_no_name(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = ["background", "right ventricular cavity", "[Myo]"]
    task = Task("heart", tuple(LabelClass(i, name, (0, 0, 0)) for i, name in enumerate(names)))
    entry = {"dsc": 0.7784, "asd": 113.024}
    report = {"classes": dict.fromkeys(names[1:], entry), **entry}
    print_measured({"validation, last": report, "validation, best": report, "test, best": report}, task)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert (out.split().count("0.778"), out.split().count("(113.02)")) == (9, 9)
    assert "…" not in out
    assert "[Myo]" in out
