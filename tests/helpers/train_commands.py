"""The real `mona train` on hearts of 32 x 32 pixels: called in the test's process, or started as one of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from helpers.small_settings import MONA, QUICK, SMALL, Done, setting
from mona_infer.cli.main import main

# 12 steps of pre-training, 12 of fine-tuning.  Records: every 2nd step, and validations after 8, 12, 16 and 24.
SETTINGS = {**SMALL, "pretrain_share": "0.5", "batch.labelled": "2", "batch.unlabelled": "6"}
SETTINGS |= {"every.validate": "8", "every.save": "4", "every.log": "2", **QUICK}
DATA = ["train", "--dataset", "hearts", "--preset", "paper"]
RUN = [*DATA, "--ratio", "0.4", "--steps", "24", *setting(SETTINGS)]


def mona(place: Path, *words: Any) -> Done:
    """A command, called in this process, in the folder `place`."""
    out, err, argv = io.StringIO(), io.StringIO(), ["mona", *map(str, words)]
    with (
        contextlib.chdir(place),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", argv),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def start(place: Path, *words: Any, threads: int = 1) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([MONA, *map(str, words)], cwd=place, env=environment, **pipes)
