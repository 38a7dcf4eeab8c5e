"""The `mona` command: the table of commands, each imported only when called, and the exit codes.

0 done, 1 a check failed, 2 bad usage or input, 3 a missing optional part, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from itertools import pairwise
from typing import Any, NoReturn, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from mona_infer import __version__
from mona_infer.cli.pipes import ignore_broken_pipes
from mona_infer.cli.plain_values import take_plain_values
from mona_infer.errors import MonaError

# name -> ("module:function" or "module:Typer", what `mona --help` says).  Only here may mona_infer name mona_train.
COMMANDS = {
    "train": ("mona_train.cli.train:train", "Train a network on many scans and few labels."),
    "export": ("mona_train.cli.export:export", "Export a run as a model file, and check it against the run."),
    "segment": ("mona_infer.cli.segment:segment", "Segment a scan, or a folder of scans, with an exported model."),
    "models": ("mona_infer.cli.models:models", "List the models that come with mona, or show the card of one."),
    "evaluate": ("mona_infer.cli.evaluate:evaluate", "Measure masks against references: DSC, NSD, ASD, HD95."),
    "view": ("mona_infer.cli.view:view", "Show a mask over its scan: one HTML page, for any browser, offline."),
    "serve": ("mona_infer.cli.serve:serve", "Serve a page and an API: segment, correct, train; for 3D Slicer too."),
    "data": ("mona_train.cli.data:app", "Prepare a data set, check it, show what is in it."),
    "label": ("mona_train.cli.label:app", "Advise which patients to label next, and why."),
    "bench": ("mona_train.cli.bench:app", "Train the rows of a table of results, and keep their scores."),
    "demo": ("mona_train.cli.demo:demo", "Train on a small phantom, compare with supervised learning, draw a picture."),
    "doctor": ("mona_infer.cli.doctor:doctor", "Show what works on this machine, and how to install the rest."),
}
# Optional packages that a command cannot start without: a missing one is reported before any work is done.
NEEDS = {
    "train": ("torch", "lightning_fabric", "safetensors"),
    "export": ("torch", "onnx", "onnxscript", "safetensors"),
    "label": ("torch", "safetensors"),
    "bench": ("torch", "lightning_fabric", "safetensors"),
    "demo": ("torch", "lightning_fabric", "safetensors"),
    "serve": ("fastapi", "uvicorn", "python_multipart"),
}
EXTRAS = {"serve": "serve"}  # the extra that they belong to, where it is not `train`


class LazyCommand(TyperCommand):
    """A name and a help line; the real command is imported when it is called."""

    def __init__(self, name: str, target: str, summary: str) -> None:
        super().__init__(name, help=summary)
        self._target = target

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if self.name in NEEDS and "--help" not in args and not extra.get("resilient_parsing"):
            from mona_infer.system.optional_parts import require

            require(self.name, *NEEDS[self.name], extra=EXTRAS.get(self.name, "train"))
        module, _, name = self._target.partition(":")
        app = getattr(importlib.import_module(module), name)
        if not isinstance(app, typer.Typer):  # a single function; a group of commands is a Typer already
            from mona_infer.cli.examples import shown

            function, app = app, typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(name=self.name, cls=OutputCommand, epilog=shown(str(self.name)))(function)
        return typer.main.get_command(app).make_context(info_name, args, parent=parent, **extra)


class OutputCommand(TyperCommand):
    """Lets `--json` and `--csv` be given alone (standard output) or with a file of that suffix."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for param in self.get_params(ctx):
            if getattr(param, "is_flag", False):
                param.metavar = ""  # else typer shows <bool>, as if it took a value
        # typer keeps a docstring's line breaks; a paragraph should fill the terminal
        self.help = "\n\n".join(" ".join(part.split()) for part in (self.help or "").split("\n\n"))
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--help" in args and not ctx.resilient_parsing:  # typer would import pydantic first
            typer.echo(ctx.get_help())
            raise typer.Exit
        take_plain_values(self.get_params(ctx), get_type_hints(self.callback))
        filled: list[str] = []
        for option, following in pairwise([*args, ""]):
            filled.append(option)
            if option in ("--json", "--csv") and not following.endswith(option[2:]):
                filled.append("-")
        return super().parse_args(ctx, filled)


class CommandGroup(TyperGroup):
    """A group of commands whose help shows flags as flags."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for param in self.get_params(ctx):
            param.metavar = ""  # else typer shows <bool>, as if --help took a value
        super().format_help(ctx, formatter)


class LazyGroup(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return LazyCommand(cmd_name, *COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Not typer options: even reading their defaults would import pydantic, 0.1 s before every command.
        if ctx.resilient_parsing:  # shell completion
            return super().parse_args(ctx, args)
        if args[:1] in (["--install-completion"], ["--show-completion"]):
            from mona_infer.cli.completion import complete

            complete(args[0], args[1] if len(args) > 1 else None)
            raise typer.Exit
        if args[:1] in (["--version"], ["--help"]):
            typer.echo(f"mona {__version__}" if args[0] == "--version" else ctx.get_help())
            raise typer.Exit
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    add_help_option=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


@app.callback()
def mona() -> None:
    """Segment medical volumes from hundreds of scans and a handful of labels.

    `mona COMMAND --help` explains a command and `mona --version` prints the
    version. `mona --install-completion` sets up Tab completion.
    """


def main() -> NoReturn:
    """Run a command; anything the user can fix is reported as one sentence on standard error."""
    ignore_broken_pipes()
    if "_MONA_COMPLETE" in os.environ:
        from mona_infer.cli.completion import prepare

        prepare()
    try:
        code = app(standalone_mode=False) or 0
        if code == 130:  # how typer returns from Ctrl-C
            _complain("interrupted", code)
    except MonaError as error:
        code = _complain(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        from mona_infer.system.optional_parts import missing_part

        part = missing_part(error)
        if part is None:
            raise
        code = _complain(str(part), part.exit_code)
    except MemoryError:
        code = _complain("not enough memory; try a smaller volume or close other programs", 2)
    except OSError as error:  # a full disk, missing permissions: the user can fix it, wherever it happens
        code = _complain(f"{error.filename or 'input or output'}: {error.strerror or error}", 2)
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's own usage errors; anything else is a bug in mona
            raise
        hint = getattr(getattr(error, "ctx", None), "command_path", "mona")
        message = error.format_message().rstrip(".")  # empty if help was shown because there were no arguments
        code = _complain(f"{message} (see `{hint} --help`)", 2) if message else 2
    sys.exit(code)


def _complain(sentence: str, code: int) -> int:
    # A sentence quotes files, which may hold line breaks, and codes that a terminal would obey.
    said = "".join(c if c.isprintable() else "?" for c in " ".join(sentence.split()))
    with contextlib.suppress(OSError):  # standard error may be a file on the disk that is full
        sys.stderr.write(f"mona: {said}\n")
    return code
