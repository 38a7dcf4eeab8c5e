"""`mona models`: the models that come with mona, and the card of each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from mona_infer.errors import InputError

if TYPE_CHECKING:
    from mona_infer.models.card import Card


def models(
    name: str | None = typer.Argument(None, metavar="[NAME]", help="Show the whole card of this model."),
    json_path: str | None = typer.Option(None, "--json", metavar="[FILE]", help="Write one JSON object."),
) -> None:
    """List the models that come with mona, or show the card of one.

    A card says what a model was trained on, its licence, its scores, what it cannot do and how to make it again.
    """
    from mona_infer.models.bundled import bundled
    from mona_infer.models.file import read_model

    cards = bundled()
    if name is not None:
        found = [card for card in cards if card.name == name]
        if not found:
            known = ", ".join(card.name for card in cards) or "none"
            raise InputError(f"no model called {name!r} comes with mona; there is {known}")
        cards = found
    for card in cards:
        read_model(card.model)  # a damaged file is told here, not at the first scan
    if json_path is not None:
        text = json.dumps({"models": [card.to_json() for card in cards]}, indent=2)
        if json_path == "-":
            typer.echo(text)
            return
        from pathlib import Path

        from mona_infer.io.atomic import write_text

        write_text(Path(json_path), text + "\n")
    if name is not None:
        typer.echo(cards[0].text)
    else:
        _print(cards)
    if json_path is not None:
        typer.echo(f"wrote {json_path}")


def _print(cards: list[Card]) -> None:
    if not cards:
        typer.echo("No model comes with this mona. Make one: mona train, then mona export.")
        return
    for card in cards:
        scores = ", ".join(f"{label} {dsc:.3f}" for label, dsc in card.classes.items())
        typer.echo(f"{card.name}: {card.title}")
        typer.echo(f"  for       {card.scans.name}")
        typer.echo(f"  trained   {card.data}")
        typer.echo(f"  DSC       {card.dsc:.3f} on {card.measured_on} ({scores})")
        typer.echo(f"  licence   {card.terms}")
        typer.echo(f"  file      {card.model.stat().st_size / 1e6:.1f} MB, {card.model}\n")
    best = {card.scans.name: card.name for card in reversed(cards)}
    used = best[cards[0].scans.name] if len(best) == 1 else "the first one for the kind of your scan"
    typer.echo(f"Without a model of your own, mona segment uses {used}. mona models {cards[0].name} shows a card.")
