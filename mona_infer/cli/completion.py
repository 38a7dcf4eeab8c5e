"""Shell completion: `mona --install-completion` and `--show-completion`, with typer's scripts.

They are not typer options, because typer would then spend 0.1 s on them before every command.
"""

from __future__ import annotations

import typer

from mona_infer.errors import InputError

PROGRAM, VARIABLE = "mona", "_MONA_COMPLETE"  # the scripts set the variable; typer responds to it
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


def complete(option: str, shell: str | None) -> None:
    """Install or show the completion script of a shell, by default the current one."""
    from typer.completion import _get_shell_name, get_completion_script, install  # type: ignore[attr-defined]

    shell = shell or _get_shell_name()
    if shell is None:
        raise InputError(f"the shell could not be detected; name it: mona {option} bash")
    if shell not in SHELLS:
        raise InputError(f"unknown shell {shell!r}; choose {', '.join(SHELLS[:-1])} or {SHELLS[-1]}")
    if option == "--show-completion":
        typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell))
        return
    _, path = install(shell=shell, prog_name=PROGRAM, complete_var=VARIABLE)
    typer.echo(f"wrote {path}; start a new {shell} to use completion")


def prepare() -> None:
    """Register the shells with typer, which only does so itself for its own options."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
