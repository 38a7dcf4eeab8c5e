"""`mona train` on two nodes, that is in two network namespaces: bit for bit the run of two processes on one."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.four_commands import SETTINGS
from helpers.launching import BIN, TORCHRUN, Command
from helpers.small_runs import write_dataset
from helpers.small_settings import kept
from helpers.train_commands import setting
from helpers.two_hosts import Host, needs_namespaces, two_hosts

pytestmark = [pytest.mark.full, needs_namespaces, pytest.mark.xdist_group("processes")]
TRAIN = ["train", "--dataset", "data", "--ratio", "0.4", "--preset", "paper", "--steps", "8"]
TRAIN += setting({**SETTINGS, "batch.unlabelled": "2"})
MEETING = "29511"  # a port of the first node


def on_node(where: Path, host: Host, first: Host, rank: int, *words: str) -> Command:
    """The line that docs/scaling.md shows, typed on one of two nodes."""
    network = ("env", f"GLOO_SOCKET_IFNAME={host.interface}")
    nodes = ("--nnodes", "2", "--node-rank", rank, "--nproc-per-node", "1")
    meeting = ("--master-addr", first.address, "--master-port", MEETING)
    return Command(where, *words, launcher=(*host.launcher, *network, BIN / "torchrun", *nodes, *meeting))


def test_two_nodes_do_the_run_of_two_processes(tmp_path: Path) -> None:
    where = tmp_path.resolve()
    write_dataset(where / "data")
    code, said = Command(where, *TRAIN, "--out", "one-node", launcher=TORCHRUN).ends()
    assert code == 0, said
    with two_hosts() as (first, second):
        both = [on_node(where, host, first, n, *TRAIN, "--out", "two-nodes") for n, host in enumerate((first, second))]
        ended = [command.ends() for command in both]
    assert [code for code, _ in ended] == [0, 0], ended
    assert "in each of 2 processes" in ended[0][1] and "wrote two-nodes" in ended[0][1], ended
    assert "wrote two-nodes" not in ended[1][1]
    found, expected = kept(where / "two-nodes"), kept(where / "one-node")
    assert {*found} == {*expected} and [name for name in expected if found[name] != expected[name]] == []
