"""Compile the Triton kernels ahead of time, without a GPU: registers, shared memory, spills, occupancy, roofline.

The ops run on meta tensors at the paper's scale and their launches are intercepted, so that exactly what a GPU would
run is compiled: the same specialisations, and every configuration of the autotuner.  Registers and spills are reported
by ptxas.  Exits with an error on a spill.

    tools/compile_kernels.py                    one configuration of each kernel, all architectures
    tools/compile_kernels.py --all --arch 90    every configuration, type, layout and mode for one architecture
    tools/compile_kernels.py --roofline         bytes, FLOPs and time bounds with their arithmetic
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

import kernel_launches
import roofline
import triton
from rich.console import Console
from rich.table import Table
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction


@dataclass(frozen=True)
class Limits:
    """Limits per multiprocessor (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""

    warps: int
    blocks: int
    shared: int  # bytes; a block takes 1 KiB more than it requests
    registers: int = 65536


ARCHITECTURES = {
    80: Limits(64, 32, 164 << 10),
    86: Limits(48, 16, 100 << 10),
    89: Limits(48, 24, 100 << 10),
    90: Limits(64, 32, 228 << 10),
    100: Limits(64, 32, 228 << 10),
    120: Limits(48, 24, 100 << 10),
}


@dataclass(frozen=True)
class Launch:
    kernel: JITFunction
    args: tuple[Any, ...]
    options: dict[str, Any]
    grid: Any

    def named(self) -> dict[str, Any]:
        """The arguments by name, tensors and numbers."""
        return {**dict(zip(self.kernel.arg_names, self.args, strict=False)), **self.options}

    def title(self) -> str:
        """The blocks and types that distinguish this launch from others of the kernel."""
        named = {k: v for k, v in self.options.items() if k.isupper() and k not in ("LEAST", "LOWEST")}
        types = [str(a.dtype).removeprefix("torch.") for a in self.args if hasattr(a, "dtype")]
        return f"{types[0]} " + " ".join(f"{k}={v}" for k, v in named.items())


@dataclass(frozen=True)
class Report:
    kernel: str
    launch: str
    arch: int
    warps: int
    stages: int
    registers: int
    shared: int
    spills: int  # bytes stored and loaded
    occupancy: float  # of the multiprocessor's warps


class Target:
    """The part of a driver that compiling needs."""

    def __init__(self, arch: int) -> None:
        self.arch = arch

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> int:
        return self.arch  # kernels are kept by device: one for each architecture

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def caught(every: bool) -> Iterator[list[Launch]]:
    """Record launches instead of making them; with `every`, for all configurations, else for the first."""
    launches: list[Launch] = []

    def launch(self: JITFunction, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        launches.append(Launch(self, args, options, grid))

    def tune(self: Autotuner, *args: Any, **options: Any) -> None:
        for config in self.configs if every else self.configs[:1]:
            self.fn.run(*args, **options, **config.all_kwargs())

    with patch.object(JITFunction, "run", launch), patch.object(Autotuner, "run", tune):
        yield launches


def collect(every: bool) -> list[Launch]:
    with caught(every) as launches:
        kernel_launches.run(every)
    return launches


def assemble(ptx: str, arch: int, most: int | None = None) -> tuple[int, int]:
    """Registers of a thread and bytes spilled, from ptxas -v; with `most`, where a thread may have no more."""
    if most:  # as a directive: ptxas does not apply --maxrregcount to a kernel that names its number of threads
        ptx = re.sub(r"^(\.reqntid .*)$", rf"\1\n.maxnreg {most}", ptx, flags=re.MULTILINE)
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        command = [get_ptxas(arch).path, "-v", f"--gpu-name={sm_arch_from_capability(arch)}", file.name]
        said = subprocess.run([*command, "-o", "/dev/null"], check=True, capture_output=True, text=True).stderr
    spills = re.findall(r"(\d+) bytes spill (?:stores|loads)", said)
    registers = re.findall(r"Used (\d+) registers", said)
    if not spills or not registers:
        raise RuntimeError(f"ptxas did not report registers and spills: {said}")
    return max(map(int, registers)), sum(map(int, spills))


def occupancy(limits: Limits, warps: int, registers: int, shared: int) -> float:
    """Share of the warps that fit at once; registers are given in units of 256, shared memory in units of 128 bytes."""
    by_registers = limits.registers // (-(-registers * 32 // 256) * 256) // warps
    by_shared = limits.shared // ((-(-shared // 128) * 128) + 1024)
    return min(limits.blocks, limits.warps // warps, by_registers, by_shared) * warps / limits.warps


def compile_all(arch: int, every: bool, only: str | None, most: int | None) -> list[Report]:
    launches = [launch for launch in collect(every) if only in (None, launch.kernel.__name__)]
    driver.set_active(Target(arch))
    if not every:
        launches = list({launch.kernel: launch for launch in reversed(launches)}.values())
    reports, seen = [], set()
    for launch in launches:
        compiled = launch.kernel.run(*launch.args, grid=launch.grid, warmup=True, **launch.options)
        if compiled.hash in seen:
            continue
        seen.add(compiled.hash)
        registers, spills = assemble(compiled.asm["ptx"], arch, most)
        m, name = compiled.metadata, launch.kernel.__name__
        busy = round(occupancy(ARCHITECTURES[arch], m.num_warps, registers, m.shared), 3)
        size = m.num_warps, m.num_stages, registers, m.shared
        reports.append(Report(name, launch.title(), arch, *size, spills, busy))
    return reports


def show(console: Console, reports: list[Report]) -> None:
    table = Table("kernel", "launch", "sm", "warps", "stages", "registers", "shared", "spills", "occupancy")
    for column in table.columns[2:]:
        column.justify = "right"
    for r in sorted(reports, key=lambda r: (r.kernel, r.launch, r.warps, r.arch)):
        numbers = r.arch, r.warps, r.stages, r.registers, r.shared, r.spills
        table.add_row(r.kernel, r.launch, *map(str, numbers), f"{r.occupancy:.0%}", style="red" if r.spills else None)
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", type=int, nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES))
    parser.add_argument("--kernel", help="only this kernel, such as _repel")
    parser.add_argument("--all", action="store_true", help="every configuration, type, layout and mode")
    parser.add_argument("--roofline", action="store_true", help="print estimates instead of compiling")
    parser.add_argument("--registers", type=int, help="limit the registers per thread, to see what would spill")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    console = Console(width=150)
    if args.roofline:
        estimates = [e for e in roofline.estimates(collect(False)) if args.kernel in (None, e.kernel)]
        print(json.dumps([asdict(e) for e in estimates], indent=1)) if args.json else roofline.show(console, estimates)
        return 0
    with ProcessPoolExecutor(args.workers) as pool:
        work = [pool.submit(compile_all, arch, args.all, args.kernel, args.registers) for arch in args.arch]
        reports = [report for future in work for report in future.result()]
    if not reports:
        print(f"unknown kernel {args.kernel}; choose {', '.join(sorted(roofline.WORK))}", file=sys.stderr)
        return 2
    spilled = [r for r in reports if r.spills]
    if args.json:
        print(json.dumps({"triton": triton.__version__, "reports": [asdict(r) for r in reports]}, indent=1))
    else:
        show(console, reports)
        console.print(f"triton {triton.__version__}: {len(reports)} compiled, {len(spilled)} with spills")
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
