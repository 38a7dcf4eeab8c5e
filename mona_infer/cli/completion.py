"""Shell completion: `mona --install-completion` and `--show-completion`, with the scripts of typer.

Not options to typer itself, which would read them before every command: 0.1 s.
"""

from __future__ import annotations

import typer

from mona_infer.errors import InputError

PROGRAM, VARIABLE = "mona", "_MONA_COMPLETE"  # the scripts set the variable, and typer answers where it is set
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


def complete(option: str, shell: str | None) -> None:
    """Install the completion for a shell, by default the one that mona was called from, or show what it is."""
    from typer.completion import _get_shell_name, get_completion_script, install  # type: ignore[attr-defined]

    shell = shell or _get_shell_name()
    if shell is None:
        raise InputError(f"the shell could not be detected; name it: mona {option} bash")
    if shell not in SHELLS:
        raise InputError(f"expected {option} {', '.join(SHELLS[:-1])} or {SHELLS[-1]}, found {shell!r}")
    if option == "--show-completion":
        typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell))
        return
    _, path = install(shell=shell, prog_name=PROGRAM, complete_var=VARIABLE)
    typer.echo(f"wrote {path}; completion works in the next {shell} that you start")


def prepare() -> None:
    """Tell typer of the shells; it does so itself only where it owns the options."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
