"""`mona train --method help` and `--dataset help`: what there is to choose from, made from the registries."""

from __future__ import annotations

import typer


def print_methods() -> None:
    from mona_train.methods.registry import methods, pretraining

    width = max(map(len, methods()))
    typer.echo("methods (--method):")
    for method in methods().values():
        typer.echo(f"  {method.name:{width}}  {method.summary} ({method.paper} {method.year})")
    typer.echo("pre-training (--pretrain):")
    typer.echo(f"  {'default':{width}}  the method's own, if it has one")
    typer.echo(f"  {'none':{width}}  no pre-training")
    for stage in pretraining().values():
        users = [m.name for m in methods().values() if stage in m.stages[:-1]]
        note = f"the default of {', '.join(users)}" if users else "used by no method by default"
        typer.echo(f"  {stage.name:{width}}  {note}")


def print_datasets() -> None:
    from mona_train.data.adapters import adapters

    known = adapters()
    width = max(map(len, known))
    typer.echo("data sets (--dataset):")
    for adapter in known.values():
        typer.echo(f"  {adapter.name:{width}}  {adapter.title}")
    typer.echo("or the path of a folder that has the layout of one of them")
