"""Models that come with mona: NAME.onnx and its card NAME.md, side by side in this folder.

To add or replace one, put both files here (`tools/bundle_model.py` makes them from a run); nothing else names them.
"""

from __future__ import annotations

from pathlib import Path

from mona_infer.errors import InputError
from mona_infer.models.card import Card, read_card

FOLDER = Path(__file__).parent


def bundled() -> list[Card]:
    """The cards of all bundled models: by kind of scan, and of each kind the best first.

    A model without a card is none.
    """
    cards = [read_card(path) for path in sorted(FOLDER.glob("*.md")) if path.with_suffix(".onnx").is_file()]
    return sorted(cards, key=lambda card: (card.scans.name, -card.dsc))


def path_of(name: str) -> Path | None:
    """The bundled model of that name, if there is one."""
    return next((card.model for card in bundled() if card.name == name), None)


def best_of_each() -> list[Card]:
    """For each kind of scan the card with the highest DSC: scores of different organs cannot be compared."""
    return list({card.scans.name: card for card in reversed(bundled())}.values())[::-1]


def best() -> Path | None:
    """None without any, and where they are for several kinds of scan: only a scan can tell then."""
    cards = best_of_each()
    return cards[0].model if len(cards) == 1 else None


def card_of(model: Path, seal: str) -> Card | None:
    """The card of a model file in this folder, which must be the one that was made for it; None for other files."""
    if model.resolve().parent != FOLDER.resolve() or not (beside := model.with_suffix(".md")).is_file():
        return None
    card = read_card(beside)
    if card.sha256 != seal:
        raise InputError(f"{beside} is the card of another model than {model.name}; install mona again")
    return card
