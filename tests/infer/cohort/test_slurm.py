"""`--cluster slurm`: the script that is submitted, and a cohort through an sbatch that only starts it here."""

import os

import pytest
from helpers.cohorts import cohort, files, segment
from helpers.launching import PATIENCE

from mona_infer.cohort.cluster import check, parse, slurm_cluster, slurm_option
from mona_infer.errors import InputError

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue, of the extra `cluster`, is not installed")
FAKES = {
    "sbatch": 'setsid bash "$1" > /dev/null 2>&1 &\necho "Submitted batch job $!"\n',
    "scancel": 'kill -- "-$1"\n',
}


def test_what_slurm_would_get():
    asked = dict(map(slurm_option, ["queue=short", "cores=8", "walltime=02:00:00", "interface=lo"]))
    with slurm_cluster(0, asked, 0, 16 * 10**9) as cluster:
        script = cluster.job_script()
    for line in ("-J mona", "-p short", "--cpus-per-task=8", "--mem=15G", "-t 02:00:00"):
        assert f"#SBATCH {line}\n" in script
    assert "export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False\n" in script
    assert " -m distributed.cli.dask_worker tcp://127.0.0.1:" in script and "--nthreads 8 " in script


@pytest.mark.parametrize(
    ("option", "message"), [("colour=red", "colour"), ("cores=0", "cores must be"), ("memory=much", "'much'")]
)
def test_what_a_job_cannot_ask_for(option, message):
    with pytest.raises(InputError, match=f"--slurm: .*{message}"):
        slurm_cluster(0, dict([slurm_option(option), ("interface", "lo")]), 0, 0)


def test_places():
    assert str(parse("local:3")) == "local:3" and str(parse("slurm:16")) == "slurm:16"
    assert str(parse("tcp://scheduler:8786")) == "tcp://scheduler:8786"
    for wrong in ("moon", "local:0", "slurm:x", "tcp://scheduler", "http://scheduler:1", ""):
        with pytest.raises(InputError, match="unknown --cluster"):
            parse(wrong)
    with pytest.raises(InputError, match="--slurm sets what jobs"):
        check(parse("local:2"), {"queue": "short"})
    with pytest.raises(InputError, match="use fewer workers"):
        check(parse("local:4"), {}, max_ram=10**9)
    with pytest.raises(InputError, match="expected --slurm KEY=VALUE"):
        slurm_option("queue")


def test_without_slurm_nothing_is_started(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="sbatch was not found"):
        check(parse("slurm:2"), {})


@pytest.mark.full
def test_a_cohort_through_slurm(tmp_path):
    """Two jobs of an sbatch that starts them on this machine; scancel ends them."""
    cohort(tmp_path, 8)
    (tmp_path / "bin").mkdir()
    for name, script in FAKES.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{script}")
        (tmp_path / "bin" / name).chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    options = ("--cluster", "slurm:2", "--slurm", "interface=lo", "--slurm", "cores=1", "--slurm", "memory=2GB")
    process = segment(tmp_path, "masks", *options, env=env)
    output = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 0, output
    assert "8 segmented, 0 had a mask already, 0 failed" in output
    assert len(files(tmp_path / "masks")) == 8
