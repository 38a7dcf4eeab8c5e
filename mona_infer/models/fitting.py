"""Which bundled model is for a scan, where there are several: the one whose kind of scan it can be, and why in words.

A score cannot decide it: a DSC of 0.95 of the liver says nothing about a heart.
"""

from __future__ import annotations

from collections.abc import Sequence

from mona_infer.errors import InputError
from mona_infer.geometry.stack import SliceStack
from mona_infer.models.card import Card
from mona_infer.models.file import Model, read_model
from mona_infer.segmenting.scan_kind import contradictions
from mona_infer.segmenting.warnings import training_differences
from mona_infer.volume import Volume


def fitting(volume: Volume, cards: Sequence[Card]) -> tuple[Model, str]:
    """The model of one of `cards`, and the reason; InputError where none fits, or where several do equally well."""
    models = [read_model(card.model) for card in cards]
    against = {card.name: reasons_against(volume, model, card) for card, model in zip(cards, models, strict=True)}
    fits = [(card, model) for card, model in zip(cards, models, strict=True) if not against[card.name]]
    excluded = [f"not {card.scans.name} ({' and '.join(against[card.name])})" for card in cards if against[card.name]]
    if not fits:
        raise InputError(
            f"{volume.source} is a scan for no model that comes with mona: {', '.join(excluded)}; train a model on "
            "scans like this one (mona train --dataset FOLDER), or choose one with --model and add --force"
        )
    if len(fits) > 1:
        unusual = {c.name: training_differences(SliceStack(volume, m.task), c.scans) for c, m in fits}
        usual = [(card, model) for card, model in fits if not unusual[card.name]]
        if len(usual) != 1:
            kinds = " or ".join(f"{card.scans.name} (--model {card.name})" for card, _ in fits)
            raise InputError(f"{volume.source} can be {kinds}; say which")
        excluded += [f"hardly {card.scans.name} ({unusual[card.name][0]})" for card, _ in fits if unusual[card.name]]
        fits = usual
    [(card, model)] = fits
    return model, f"chose {card.name}: the scan can be {card.scans.name}, {', '.join(excluded)}"


def reasons_against(volume: Volume, model: Model, card: Card) -> list[str]:
    """Why a scan cannot be of the kind that a model is for; nothing if it can."""
    if volume.modality and model.task.modality and volume.modality != model.task.modality:
        return [f"it is {volume.modality}, not {model.task.modality}"]
    return contradictions(volume, model.task, card.scans)
