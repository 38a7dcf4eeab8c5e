"""Two network namespaces with a cable between them: as far as processes can tell, two machines with one disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

NEITHER = "needs root and `ip` (iproute2), to make network namespaces"


def why_not() -> str:
    """Why there can be no namespaces; empty if there can."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("ip") is None:
        return NEITHER
    tried = subprocess.run(["unshare", "-n", "ip", "link", "add", "mona0", "type", "veth"], capture_output=True)
    return "" if tried.returncode == 0 else NEITHER


needs_namespaces = pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")


@dataclass(frozen=True)
class Host:
    namespace: str
    address: str
    interface: str

    @property
    def launcher(self) -> tuple[str, ...]:
        """Before a command: it runs there."""
        return ("ip", "netns", "exec", self.namespace)


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    number = os.getpid()
    hosts = [Host(f"mona-{number}-{n}", f"10.77.0.{n}", f"mona{n}") for n in (1, 2)]
    made: list[Host] = []
    try:
        for host in hosts:
            _ip("netns", "add", host.namespace)
            made.append(host)
        first, second = hosts
        there = ("peer", "name", second.interface, "netns", second.namespace)
        _ip("link", "add", first.interface, "netns", first.namespace, "type", "veth", *there)
        for host in hosts:
            _ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", host.interface)
            for name in ("lo", host.interface):
                _ip("-n", host.namespace, "link", "set", name, "up")
        yield first, second
    finally:
        for host in made:
            _ip("netns", "delete", host.namespace)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
