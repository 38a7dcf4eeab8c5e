"""`mona train` on two nodes, that is in two network namespaces: bit for bit the run of two processes on one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from helpers.four_commands import SETTINGS
from helpers.launching import BIN, PATIENCE, TORCHRUN, Command
from helpers.small_runs import write_dataset
from helpers.small_settings import kept
from helpers.train_commands import mona, setting
from helpers.two_hosts import Host, needs_namespaces, two_hosts
from lightning_fabric import Fabric

pytestmark = pytest.mark.xdist_group("processes")
TRAIN = ["train", "--dataset", "data", "--ratio", "0.4", "--preset", "paper", "--steps", "8"]
TRAIN += setting({**SETTINGS, "batch.unlabelled": "2"})
MEETING = "29511"  # a port of the first node


def on_node(where: Path, host: Host, first: Host, rank: int, *words: str, named: bool = True) -> Command:
    """The line that docs/scaling.md shows, typed on one of two nodes; the interface may be left out."""
    network = ("env", f"GLOO_SOCKET_IFNAME={host.interface}") if named else ()
    nodes = ("--nnodes", "2", "--node-rank", rank, "--nproc-per-node", "1")
    meeting = ("--master-addr", first.address, "--master-port", MEETING)
    return Command(where, *words, launcher=(*host.launcher, *network, BIN / "torchrun", *nodes, *meeting))


@pytest.mark.full
@needs_namespaces
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


@pytest.mark.full
@needs_namespaces
def test_a_network_that_is_not_named_is_told(tmp_path: Path) -> None:
    """gloo takes the address of the machine's name, which is that of no other machine; the first node waits in vain."""
    where = tmp_path.resolve()
    write_dataset(where / "data")
    with two_hosts() as (first, second):
        words = (*TRAIN, "--out", "two-nodes")
        waiting, told = [on_node(where, host, first, n, *words, named=False) for n, host in enumerate((first, second))]
        said, _ = told.child.communicate(timeout=PATIENCE)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.ends(within=1)  # and ends all processes
    assert "mona: this process cannot reach those on other machines" in said and "GLOO_SOCKET_IFNAME" in said, said


def test_a_network_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Fabric) -> None:
        raise RuntimeError(
            "Gloo connectFullMesh failed with [gloo/pair.cc:152] timed out connecting: refused, remote=x"
        )

    write_dataset(tmp_path / "data")
    monkeypatch.setattr(Fabric, "launch", refused)
    done = mona(tmp_path, *TRAIN)
    assert done.code == 2 and done.err.startswith("mona: this process cannot reach those on other machines"), done
    assert done.err.count("\n") == 1 and "(timed out connecting: refused, remote=x)" in done.err
