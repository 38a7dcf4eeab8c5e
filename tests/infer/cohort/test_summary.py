"""`--summary`, `--num-parts` and lists, in this process: what the table says, also of scans that are skipped."""

import csv
from pathlib import Path

import pytest
from helpers.cohorts import cohort

from mona_infer.cli.main import app
from mona_infer.cohort.kept import MEASURED
from mona_infer.errors import CheckFailed, InputError, MissingPart
from mona_infer.segmenting.report import CaseReport, ClassReport, FrameReport


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cohort(tmp_path, 5)
    return tmp_path


def mona(*words):
    return app(["segment", *words, "--out", "masks", "--model", "model.onnx"], standalone_mode=False)


def table(name="all.csv"):
    with Path(name).open() as file:
        return list(csv.DictReader(file))


def test_a_repeated_command_writes_the_same_table(here):
    mona("scans", "--summary", "all.csv")
    first = Path("all.csv").read_bytes()
    (row, *_) = rows = table()
    assert [row["case"] for row in rows] == [f"scan{n:03d}" for n in range(5)]
    assert row["scan"] == "scans/scan000.nii.gz" and row["mask"] == "masks/scan000.nii.gz" and row["error"] == ""
    assert float(row["LV ml"]) > 0 and int(row["doubts"]) == (row["warnings"] != "")
    mona("scans", "--summary", "all.csv")
    assert Path("all.csv").read_bytes() == first


def test_a_mask_without_a_record_is_measured_and_the_table_says_so(here):
    mona("scans", "--summary", "all.csv")
    wanted = table()
    for record in Path("masks/.reports").iterdir():
        record.unlink()
    mona("scans", "--summary", "all.csv")
    for row, before in zip(table(), wanted, strict=True):
        assert [row[name] for name in ("RV ml", "Myo ml", "LV ml")] == [before[n] for n in ("RV ml", "Myo ml", "LV ml")]
        assert row["warnings"] == MEASURED and row["doubts"] == "1"


def test_a_scan_that_failed_has_its_reason_in_the_table(here):
    Path("list.csv").write_text("scan,case\nscans/scan000.nii.gz,good\nscans/gone.nii.gz,missing\n")
    with pytest.raises(CheckFailed, match=r"1 of 2 cases failed \(missing\)"):
        mona("list.csv", "--summary", "all.csv")
    good, missing = table()
    assert good["case"] == "good" and Path("masks/good.nii.gz").is_file()
    assert "does not exist" in missing["error"] and missing["mask"] == missing["LV ml"] == ""
    assert not Path("masks/.reports/missing.json").exists()


def test_parts_of_a_cohort(here, capsys):
    for part in range(3):
        mona("scans", "--num-parts", "3", "--part", str(part), "--summary", f"part{part}.csv")
    assert [row["case"] for row in table("part1.csv")] == ["scan001", "scan004"]
    assert len(list(Path("masks").glob("*.nii.gz"))) == 5
    mona("scans/scan00[01]*", "--num-parts", "3", "--part", "2")
    assert "part 2 of 3 has no scans" in capsys.readouterr().out


def test_a_parquet_table_has_the_same_rows(here):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow, of the extra `parquet`, is not installed")
    mona("scans", "--summary", "all.parquet")
    mona("scans", "--summary", "all.csv")
    rows = parquet.read_table("all.parquet").to_pylist()
    assert [row["LV ml"] for row in rows] == [float(row["LV ml"]) for row in table()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("scans", "--summary", "all.xlsx"), "expected --summary FILE.csv or FILE.parquet"),
        (("scans", "--part", "1"), "belong together"),
        (("scans", "--num-parts", "2", "--part", "2"), "--part must be 0 to 1"),
        (("scans", "--slurm", "queue=short"), "add --cluster slurm"),
        (("scans", "--cluster", "moon"), "unknown --cluster 'moon'"),
        (("scans", "--cluster", "local:2", "--preview", "p.png"), "use --page"),
    ],
)
def test_what_does_not_go_together(here, words, message):
    with pytest.raises((InputError, MissingPart), match=message):
        mona(*words)
    assert not Path("masks").exists()


def test_a_report_comes_back_from_its_json():
    frames = [FrameReport({"LV": ClassReport(3, 10 * n, 1.5 * n, [2.0], 0.9)}) for n in (1, 2)]
    for report in (
        CaseReport("a", "a.nii", "m.nii", None, [1.0, 1.0, 8.0], ["odd"], frames[:1]),
        CaseReport("a", "a.nii", "m.nii", None, [1.0, 1.0, 8.0], [], frames, [0.0, 30.0], 30.0),
        CaseReport("a", "a.nii", error="it is truncated"),
    ):
        assert CaseReport.from_json(report.to_json()) == report
