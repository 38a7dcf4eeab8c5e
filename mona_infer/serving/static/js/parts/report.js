// What is known of a segmented case and what it means: the report that `mona segment --json` writes.
import { el, icon } from "../core/dom.js";
import { ml, percent, score } from "../core/words.js";

export function report(result) {
  const warnings = result.warnings ?? [];
  return [
    el(
      "section",
      {},
      el("h2", {}, "What to check"),
      warnings.length
        ? el(
            "ul",
            { class: "warnings" },
            warnings.map((text) => el("li", {}, icon("warn"), el("span", {}, sentence(text)))),
          )
        : el(
            "p",
            { class: "row good-words" },
            icon("check"),
            "Nothing unusual: this scan looks like those the model was trained on.",
          ),
    ),
    result.cine ? beat(result.cine) : null,
  ];
}

function sentence(text) {
  const whole = text.replace(/^its /, "The scan's ").replace(/^it /, "The scan ");
  return whole.charAt(0).toUpperCase() + whole.slice(1) + (/[.!?]$/.test(whole) ? "" : ".");
}

/** Columns for the legend beside the volumes: certainty, and DSC where there is a label. */
export function columns(result, frame, classes) {
  const entries = (result.frames ?? [result])[frame]?.classes;
  const scores = (result.frames ?? [result])[frame]?.scores;
  const by = (text) => classes.map(({ name }) => text(name));
  return [
    ...(entries
      ? [
          [
            "Certainty",
            by((name) => (Number.isFinite(entries[name]?.confidence) ? percent(entries[name].confidence) : "–")),
          ],
        ]
      : []),
    ...(scores ? [["DSC", by((name) => score(scores[name]?.dsc ?? scores[name]))]] : []),
  ];
}

export function meaning(scored = false) {
  return el(
    "details",
    { class: "meaning" },
    el("summary", {}, "What these numbers mean"),
    el(
      "p",
      {},
      "Volume is the number of voxels of a structure times the size of a voxel. Certainty is the model's own mean ",
      "probability where it chose the structure: a low value is a reason to look, a high one no proof.",
    ),
    scored && el("p", {}, "DSC compares with the label: 1 is a perfect overlap, 0 none."),
  );
}

function beat(cine) {
  return el(
    "section",
    {},
    el("h2", {}, "Heartbeat"),
    el(
      "dl",
      {},
      el("dt", {}, `${cine.class}, end-diastole`),
      el("dd", {}, `${ml(cine.ED.ml)}, frame ${cine.ED.frame + 1}`),
      el("dt", {}, `${cine.class}, end-systole`),
      el("dd", {}, `${ml(cine.ES.ml)}, frame ${cine.ES.frame + 1}`),
      el("dt", {}, "Stroke volume"),
      el("dd", {}, ml(cine.stroke_ml)),
      el("dt", {}, "Ejection fraction"),
      el("dd", {}, percent(cine.ejection_fraction)),
    ),
  );
}
