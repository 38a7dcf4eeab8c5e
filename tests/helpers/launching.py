"""How tests start two processes, and how long they wait for them."""

from __future__ import annotations

import sys
from pathlib import Path

BIN = Path(sys.executable).parent
TORCHRUN = (BIN / "torchrun", "--standalone", "--nproc-per-node", "2")
TOLERANCE = 1e-5  # measured here: every difference is 0
PATIENCE = 900  # seconds; on two quiet cores a run takes 15
