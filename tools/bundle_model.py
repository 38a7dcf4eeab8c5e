"""Make a model that ships with mona from a finished run: the sealed fp16 file and its card, side by side.

    python tools/bundle_model.py runs/acdc-mona-5pc acdc-5pc [--commit HASH]

They go to mona_infer/models/bundled/ (or --out), and replace what is there under that name.  Everything in the card
comes from the run, the certificate, and what SETS below says of the data set; nothing is typed for one model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mona_infer.io.atomic import write_text
from mona_infer.models import bundled
from mona_infer.models.card import FENCE
from mona_infer.models.file import Model
from mona_train.config.command import command_of
from mona_train.data.adapters import adapter_named
from mona_train.data.resolved import Resolved
from mona_train.export.certify import describe
from mona_train.export.make import export_run
from mona_train.methods.registry import stages_of
from mona_train.run.load import Trained, load_run

LARGEST = 4_000_000  # bytes


@dataclass(frozen=True)
class Set:
    """What is known of a data set that its files do not say."""

    title: str
    data: str
    licence: str  # SPDX
    terms: str
    scans: str  # TOML: the card's table of that name
    limits: str  # Markdown


ACDC = Set(
    title="right ventricle (RV), myocardium (Myo) and left ventricle (LV)",
    data="ACDC, cine MR of the heart",
    licence="CC-BY-NC-SA-4.0",
    terms="CC BY-NC-SA 4.0: for research, not for clinical use",
    # Refused is only what cannot be a short-axis stack.  Limits are wide: files often have lost their spacing, and a
    # scan of the right kind must never be refused.  The usual spacing is that of the challenge's paper; this copy of
    # the data has none.  The usual number of slices is that of the training and validation volumes.
    scans="""name = "a short-axis stack of the heart (MR)"
oblique = true

[scans.possible]
"slices" = [1, 50]
"depth" = [0, 350]
"in-plane spacing" = [0.2, 5]
"field of view" = [90, 1000]

[scans.usual]
"slices" = [5, 20]
"in-plane spacing" = [1.37, 1.68]
"slice spacing" = [5, 10]
""",
    limits="""- **Spacing.** The copy of ACDC that the model learned from has no voxel spacing, so the model measures in
  pixels: the long side of a slice is its ruler, whatever the millimetres in the file. It expects the heart to take
  about as much of the picture as in ACDC: a field of view of about 350 to 430 mm, with the whole chest in it. On a scan
  that is cropped around the heart, or that shows much more than the chest, expect worse masks: pad or crop it to the
  whole chest first. Volumes in mL are computed from the spacing in your file, and are as right as that is.
- **Kind of scan.** Cine MR (SSFP), short-axis stacks with thick slices, end-diastole and end-systole. Other sequences,
  contrast-enhanced scans, long-axis views, CT and other organs are unknown to it. What is plainly something else is
  refused; what may be is segmented with a warning.
- **Hospital.** All patients are from one hospital and two scanners. Scores elsewhere may be lower.
- **Patients.** ACDC has healthy people and four groups of disease, but this copy does not say who is who, so no scores
  by disease can be given. Congenital defects are not in it.
- **Distances.** Without a spacing, distances in mm mean nothing here, so the table has none.""",
)
SETS = {"acdc": ACDC}
CARD = """# {name}

Segments the {title} in {scans}.

**Intended use:** research on cardiac MR, teaching, and as a starting point for correcting masks by hand. **Not for
clinical use:** it is no medical device, and no clinician has approved it. Look at every mask.

## Scores

DSC on {measured_on} ({volumes} volumes) that it did not learn from, with 95 % intervals (bootstrap of patients):

| | DSC | 95 % interval | missed |
|---|---|---|---|
{rows}

The same patients chose the training step{post_processing}, so these scores are a little optimistic. The challenge's own
test patients are not in this copy of the data.

## Training data and licence

{trained}; {labelled_slices} labelled slices{unlabelled}. Labels: {labels}.

Licence of the data: {licence}. The model derives from that data and comes under the same licence: share it with
attribution, under the same licence, not for commercial purposes. `LICENCE.md` beside the model has the terms and whom
to cite. The code of mona is under Apache-2.0.

## Limits

{limits}

## The file

{size:.2f} MB, weights in half precision; processors compute in float32 as fast as with the full weights. Certificate:
{certificate}. Seal: `{sha256}`.

## Make it again

```sh
{command}
python tools/bundle_model.py {run} {name}
```

mona {mona}, torch {torch}, commit `{commit}`; trained in {precision}, network of step {step} of {steps} ({which}),
weights `{weights}`. On another processor the last digits differ.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--commit", help="of the code that trained the run; default: that of this clone")
    parser.add_argument("--out", type=Path, default=bundled.FOLDER)
    options = parser.parse_args()
    model, card = bundle(options.run, options.name, options.out, options.commit or _commit())
    print(f"wrote {model}, {card}")


def bundle(run: Path, name: str, out: Path, commit: str) -> tuple[Path, Path]:
    trained = load_run(run)
    if not trained.results.get("validation"):
        sys.exit(f"{run} has no validation scores: only a finished run with validation patients can be bundled")
    with tempfile.TemporaryDirectory() as temporary:
        exported, certificate = export_run(run, "fp16", Path(temporary) / f"{name}.onnx", say=print)
        if len(exported.content) >= LARGEST:
            sys.exit(f"the model has {len(exported.content):,} bytes; expected fewer than {LARGEST:,}")
        text = card(name, trained, exported, certificate, commit, run.resolve().name)
        shutil.copyfile(exported.path, out / f"{name}.onnx")
    write_text(out / f"{name}.md", text)
    return out / f"{name}.onnx", out / f"{name}.md"


def card(name: str, trained: Trained, model: Model, certificate: dict[str, Any], commit: str, run: str) -> str:
    """The whole file: head and Markdown."""
    resolved = trained.require_data()
    if resolved.adapter not in SETS:
        sys.exit(f"tools/bundle_model.py knows {', '.join(SETS)}; describe {resolved.adapter} in SETS")
    known, split, facts = SETS[resolved.adapter], resolved.split, model.facts
    scores = trained.results["validation"][trained.chosen]
    patients = len({case.patient for case in resolved.cases() if case.name in split.val})
    measured_on = f"{patients} validation patients"
    quoted = json.dumps  # JSON strings are TOML strings
    data = f"{known.data}: {_labelled(resolved, trained.config.ratio)}"
    classes = {c.name: scores["classes"][c.name]["dsc"] for c in trained.task.classes[1:]}
    head = [f"{key} = {quoted(text)}" for key, text in (
        ("sha256", model.seal), ("title", known.title), ("data", data), ("licence", known.licence),
        ("terms", known.terms), ("measured_on", measured_on),
    )]  # fmt: skip
    head += [f"dsc = {scores['dsc']:.4f}", "", "[classes]", *(f"{quoted(n)} = {v:.4f}" for n, v in classes.items())]
    head += ["", "[scans]", known.scans]
    stages = stages_of(trained.config.method, trained.config.pretrain)
    unlabelled = len(split.unlabelled) if any(stage.unlabelled for stage in stages) else 0
    body = CARD.format(
        name=name,
        title=known.title,
        scans=_scan_name(known),
        measured_on=measured_on,
        volumes=len(split.val),
        rows="\n".join(_row(n, scores["classes"][n]) for n in classes) + "\n" + _row("mean", scores),
        post_processing=" and the post-processing" if trained.results.get("post_processing") else "",
        trained=data,
        labelled_slices=len(split.labelled),
        unlabelled=f" and {unlabelled} without labels" if unlabelled else "",
        labels=", ".join(f"{c.id} {c.name}" for c in trained.task.classes),
        licence=adapter_named(resolved.adapter).licence,
        limits=known.limits,
        size=len(model.content) / 1e6,
        certificate=describe(certificate, "fp16"),
        sha256=model.seal,
        command=command_of(trained.config),
        run=f"runs/{run}",
        mona=facts["code"]["mona"],
        torch=facts["code"]["torch"],
        commit=commit,
        precision=trained.config.precision,
        step=trained.step,
        steps=trained.config.steps,
        which=f"{trained.chosen} on validation" if trained.chosen == "best" else "the last",
        weights=trained.weights,
    )
    return FENCE + "\n".join(head) + FENCE + "\n" + _wrapped(body)


def _wrapped(text: str) -> str:
    """Paragraphs in lines of 110 characters: a card is read in a terminal.  Tables, lists and code stay as they are."""
    parts = text.split("\n\n")
    plain = [not part.startswith(("#", "|", "-", "```")) for part in parts]
    return "\n\n".join(textwrap.fill(p, 110) if fill else p for p, fill in zip(parts, plain, strict=True)) + "\n"


def _labelled(resolved: Resolved, ratio: float | None) -> str:
    split = resolved.split
    labelled, others = len(split.labelled_patients), len(split.unlabelled_patients)
    if not others:
        return f"all {labelled} training patients labelled"
    share = f"{100 * ratio:g} %, " if ratio is not None else ""
    return f"{labelled} of {labelled + others} training patients labelled ({share}{split.origin})"


def _row(name: str, entry: dict[str, Any]) -> str:
    low, high = (entry["ci95"] or {}).get("dsc") or (float("nan"),) * 2
    return f"| {name} | {entry['dsc']:.3f} | {low:.3f} to {high:.3f} | {100 * (entry['miss_rate'] or 0):.0f} % |"


def _scan_name(known: Set) -> str:
    return str(tomllib.loads(known.scans)["name"])


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
