"""What people see of a run: the live display, plain lines, log.txt, TensorBoard."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mona_train.run.board import Board
from mona_train.run.display import Display, span
from mona_train.run.log import Log

NAMES = ["supervised", "contrast", "equivariance", "unsupervised", "neighbours", "consistency", "pseudo_label"]
LOSSES = dict.fromkeys(NAMES, 0.5)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """Knows what rich sends: carriage return, line feed, cursor up, erase line, colours."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        lines, row, column = [""], 0, 0
        for code, text in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)|([^\x1b\r\n]+)", self.getvalue()):
            if code == "\r":
                column = 0
            elif code == "\n":
                row, column = row + 1, 0
                lines += [""] * (row - len(lines) + 1)
            elif code.endswith("A"):
                row -= int(code[2:-1] or 1)
            elif code.endswith("K"):
                lines[row] = ""
            elif text:
                lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
                column += len(text)
        return [line.rstrip() for line in lines]


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In place of standard error; no fixture, for pytest puts its own there when the test begins."""
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    return terminal


def test_a_terminal_of_80_columns_shows_seven_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    clock = Clock()
    with Display(3000, clock=clock) as display:
        display.stage("acr", 1000, 3000)
        display.say("worth [bold]saying[/bold]: " + "x" * 80)
        for number in (1004, 1007, 1010):
            clock.now += 0.81 * 3
            display.step(number, {**LOSSES, "contrast": 6.0987}, lr=0.00123)
        display.validated(1010, 0.8154, best=True)
        display.validated(1010, 0.8121, best=False)
    screen = terminal.screen()
    assert screen[:2] == ["acr: steps 1001 to 3000 of 3000", "worth [bold]saying[/bold]: " + "x" * 80]
    shown = screen[2:-1]
    assert all(len(line) <= 80 for line in shown) and "…" not in "".join(shown)
    assert re.fullmatch(r"acr  [━╸╺]{20,}  1010/3000  0\.81 s/step  ETA 27 min", shown[0])
    values = dict(pair.split(" ") for line in shown[1:-1] for pair in re.split(" {2,}", line))
    assert values == {**dict.fromkeys(LOSSES, "0.5"), "contrast": "6.1", "lr": "0.00123"}
    assert len(shown) == 5
    assert shown[-1] == "DSC 0.812 (best 0.815 at 1010)"


def test_the_cursor_comes_back_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with pytest.raises(KeyError), Display(10) as display:
        display.stage("a", 0, 10)
        raise KeyError
    assert terminal.getvalue().rfind("\x1b[?25h") > terminal.getvalue().rfind("\x1b[?25l") >= 0


def test_the_display_leaves_standard_output_to_those_who_read_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = terminal_of(monkeypatch)
    with Display(10):
        print("result")
    assert capsys.readouterr().out == "result\n" and "result" not in terminal.getvalue()


def test_elsewhere_a_line_every_half_minute_and_at_validations(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Display(3000, first=1100, best=(1000, 0.8154), clock=clock) as display:
        clock.now += 500  # reading data is no part of the pace
        display.stage("acr", 750, 3000)
        assert capsys.readouterr().err == "acr: steps 1101 to 3000 of 3000\n"
        clock.now += 0.5
        display.step(1101, {"supervised": 0.31}, lr=0.01)
        assert capsys.readouterr().err == ""
        clock.now += 28.5
        display.step(1158, {"supervised": 0.31}, lr=0.01)
        assert capsys.readouterr().err == ""
        clock.now += 21
        display.step(1200, {"supervised": 0.31, "contrast": 6.1}, lr=0.01)
        assert capsys.readouterr().err == (
            "acr 1200/3000  0.50 s/step  ETA 15 min  supervised 0.31  contrast 6.1  lr 0.01"
            "  DSC 0.815 (best 0.815 at 1000)\n"
        )
        display.validated(1200, 0.812, best=False)
        assert capsys.readouterr().err.endswith("lr 0.01  DSC 0.812 (best 0.815 at 1000)\n")
        clock.now += 29
        display.step(1210, {}, lr=0.01)  # the validation had a line
        assert capsys.readouterr().err == ""
        display.validated(1210, 0.82, best=True)
        assert capsys.readouterr().err.endswith("DSC 0.820 (best 0.820 at 1210)\n")
        display.say("[bold]as it is[/bold]")
        assert capsys.readouterr().err == "[bold]as it is[/bold]\n"


def lines_of(capsys: pytest.CaptureFixture[str], display: Display, number: int) -> str:
    capsys.readouterr()
    display.validated(number, 0.5, best=False)
    return capsys.readouterr().err


def advance(display: Display, clock: Clock, until: int, *, seconds: float) -> None:
    """Every ten steps the display is told."""
    for number in range(display._number + 10, until + 1, 10):
        clock.now += 10 * seconds
        display.step(number, {}, 0.1)


def test_pace_and_eta_are_of_this_process_and_stage_validations_included(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = Display(2000, clock=clock)
    display.stage("one", 0, 1000)
    assert "ETA" not in lines_of(capsys, display, 0)
    for number in range(10, 501, 10):
        clock.now += 20
        display.step(number, {}, 0.1)
    assert "one 500/2000  2.00 s/step  ETA 50 min  lr 0.1" in lines_of(capsys, display, 500)
    clock.now += 100
    slower = float(re.search(r"([\d.]+) s/step", lines_of(capsys, display, 500))[1])  # type: ignore[index]
    assert 2.15 < slower < 2.35
    display.stage("two", 1000, 2000)
    for number in (1010, 1030, 1050):
        assert "ETA" not in lines_of(capsys, display, display._number)  # not before two warm stretches
        clock.now += 0.204
        display.step(number, {}, 0.1)
    assert "two 1050/2000  98 steps/s  ETA 10 s" in lines_of(capsys, display, 1050)


def test_the_eta_knows_what_a_later_stage_costs(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = Display(2000, clock=clock)
    display.stage("one", 0, 1000, later=2000)
    advance(display, clock, 500, seconds=2.0)
    assert "2.00 s/step  ETA 83 min" in lines_of(capsys, display, 500)
    display.stage("two", 1000, 2000, later=0)
    advance(display, clock, 1100, seconds=4.0)
    assert "4.00 s/step  ETA 60 min" in lines_of(capsys, display, 1100)


# Seconds of each step of a bf16-mixed run on a CPU: GLCon's first twelve, recorded, the first of them cold.
RECORDED = [0.32, 0.10, 0.11, 0.10, 0.10, 0.10, 0.11, 0.12, 0.11, 0.11, 0.11, 0.11]


@pytest.mark.parametrize("every, cold", [(1, 0.32), (1, 30.0), (4, 0.32), (4, 30.0)])
def test_the_first_estimate_is_of_warm_steps(capsys: pytest.CaptureFixture[str], every: int, cold: float) -> None:
    """Kernels are compiled in the first step; on another machine that took half a minute, and the ETA hours."""
    clock, shown = Clock(), []
    display = Display(8000, clock=clock)
    display.stage("glcon", 0, 3200, later=4800)
    for number, seconds in enumerate([cold, *RECORDED[1:]], 1):
        clock.now += seconds
        if number % every == 0:
            display.step(number, {}, 0.1)
            shown += display._when()[1:]
    assert shown and set(shown) <= {"ETA 13 min", "ETA 14 min", "ETA 15 min"}  # 0.11 s x 8000 is 14.4 min
    assert len(shown) == 12 // every - 2


@pytest.mark.parametrize(
    "times, tried",
    [
        ([0.44, 0.13, 0.11, 0.11], 4),  # recorded: fp32, the first two cold
        ([25.0, 0.26, 0.27], 3),
        ([2.6, 2.6, 1.3, 0.6, 0.26, 0.26], 6),  # one kernel compiled after another
        ([9.0, 8.0, 7.0], 3),  # nobody waits for more of these
        ([0.5 * 0.7**n for n in range(12)], 12),
    ],
)
def test_the_estimate_before_a_run_waits_until_passes_are_warm(times: list[float], tried: int) -> None:
    from mona_train.engine.profile import steady

    assert [steady(times[:n]) for n in range(tried + 1)] == [False] * tried + [True]


def test_an_estimate_survives_a_slow_stretch_and_follows_a_lasting_change(capsys: pytest.CaptureFixture[str]) -> None:
    clock, display = (c := Clock()), Display(8000, clock=c)
    display.stage("acr", 0, 8000)
    advance(display, clock, 200, seconds=0.25)
    clock.now += 600  # the computer slept
    display.step(210, {}, 0.1)
    assert display._when() == ["0.26 s/step", "ETA 34 min"]
    advance(display, clock, 800, seconds=0.5)
    assert display._when() == ["0.50 s/step", "ETA 60 min"]


def test_validations_count_by_how_often_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    clock, display = (c := Clock()), Display(8000, clock=c)
    display.stage("acr", 0, 8000)
    for until, validation in ((200, 90.0), (400, 20.0), (600, 20.0)):  # the first one compiles kernels
        advance(display, clock, until, seconds=0.25)
        clock.now += validation
        display.validated(until, 0.5, best=False)
    assert display._when()[0] == "0.35 s/step"


def test_losses_are_smoothed_and_get_over_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(2000, clock=Clock())
    display.stage("one", 0, 1000)
    for number, loss in enumerate([0.0] * 100 + [1.0] * 69, 1):  # 0.99^69 is a half
        display.step(number, {"a": loss}, 0.1)
    assert "  a 0.5  " in lines_of(capsys, display, 169)
    display.step(238, {"a": 1.0}, 0.1)  # 69 steps untold weigh as much as 69 told
    assert "  a 0.75  " in lines_of(capsys, display, 238)
    for number, bad in ((239, "nan"), (241, "inf")):
        display.step(number, {"a": float(bad)}, 0.1)
        assert f"  a {bad}  " in lines_of(capsys, display, number)
        display.step(number + 1, {"a": 3.0}, 0.1)
        assert "  a 3  " in lines_of(capsys, display, number + 1)
    display.stage("two", 1000, 2000)
    assert " a " not in lines_of(capsys, display, 1000)


def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with Display(10, quiet=True) as display:
        display.stage("a", 0, 10)
        display.step(1, LOSSES, 0.1)
        display.validated(1, 0.5, best=True)
        display.say("nothing")
    assert terminal.getvalue() == ""


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with Display(10) as display:
        display.stage("a", 0, 10)
    assert terminal.getvalue() == "a: steps 1 to 10 of 10\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (1440, "24 min"), (7140, "119 min"), (7200, "2 h 00 min"),
     (7530, "2 h 06 min"), (47 * 3600, "47 h 00 min"), (48 * 3600, "2 d 0 h"), (100 * 3600, "4 d 4 h")],
)  # fmt: skip
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_the_log_has_a_time_for_each_entry(tmp_path: Path) -> None:
    path = tmp_path / "run" / "log.txt"
    Log(path)("began\nwith two lines")
    Log(path)("went on é \udcff")
    Log(None)("nowhere")
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d  "
    assert re.fullmatch(rf"{stamp}began\n {{27}}with two lines\n{stamp}went on é \\udcff\n", path.read_text("utf-8"))


def test_tensorboard_forgets_what_a_killed_run_wrote_too_much(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = Board(tmp_path)
    for step in (10, 20, 30):
        board.scalars(step, {"loss": 1.0, "lr": 0.5})
    board.picture(20, "cases", np.zeros((4, 5, 3), np.uint8))
    board.close()
    board = Board(tmp_path, purge=20)  # the checkpoint was taken after step 20
    board.scalars(40, {"loss": 2.0})
    board.close()

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {e.step: e.value for e in events.Scalars("loss")} == {10: 1.0, 20: 1.0, 40: 2.0}
    assert [(e.step, e.height, e.width) for e in events.Images("cases")] == [(20, 4, 5)]


def test_a_board_nobody_writes_to_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Board(tmp_path / "a").close()
    board = Board(None)
    board.scalars(1, {"a": 1.0})
    board.picture(1, "a", np.zeros((4, 5, 3), np.uint8))
    board.close()
    assert not list(tmp_path.iterdir())


def test_without_tensorboard_there_is_no_board_and_no_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)  # what import takes for "not there"
    board = Board(tmp_path)
    board.scalars(1, {"a": 1.0})
    board.picture(1, "a", np.zeros((4, 5, 3), np.uint8))
    board.close()
    assert not list(tmp_path.iterdir()) and capfd.readouterr() == ("", "")


def test_importing_the_board_imports_neither_torch_nor_tensorboard() -> None:
    code = (
        "import sys, mona_train.run.board, mona_train.run.display; print({'torch', 'tensorboard'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
