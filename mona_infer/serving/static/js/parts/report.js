// The numbers of a segmented case and what they mean: what `mona segment --json` writes of it.
import { el, icon } from "../core/dom.js";
import { ml, percent } from "../core/words.js";

export function report(result) {
  const warnings = result.warnings ?? [];
  const frames = result.frames ?? (result.classes ? [result] : []);
  return [
    el("section", {}, el("h2", {}, "What to check"), warnings.length
      ? el("ul", { class: "warnings" }, warnings.map((text) => el("li", {}, icon("warn"), el("span", {}, sentence(text)))))
      : el("p", { class: "row good-words" }, icon("check"), "Nothing unusual: this scan looks like those the model was trained on.")),
    frames.length === 1 ? numbers(frames[0]) : null,
    result.cine ? beat(result.cine) : null,
  ];
}

function sentence(text) {
  const whole = text.replace(/^its /, "The scan's ").replace(/^it /, "The scan ");
  return whole.charAt(0).toUpperCase() + whole.slice(1) + (/[.!?]$/.test(whole) ? "" : ".");
}

function numbers(frame) {
  const rows = Object.entries(frame.classes ?? {});
  if (!rows.length) return null;
  const scored = frame.scores && Object.values(frame.scores).some((score) => score);
  return el("section", {}, el("h2", {}, "Numbers"),
    el("table", {}, el("thead", {}, el("tr", {}, ["Structure", "Volume", "Certainty", scored ? "DSC" : null].map((name) => name && el("th", { scope: "col" }, name)))),
      el("tbody", {}, rows.map(([name, entry]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, ml(entry.ml)),
        el("td", {}, entry.confidence === null ? "none found" : percent(entry.confidence)),
        scored && el("td", {}, frame.scores[name]?.dsc?.toFixed(3) ?? "–"))))),
    el("details", {}, el("summary", {}, "What these numbers mean"),
      el("p", {}, "Volume is the number of voxels of a structure times the size of a voxel. Certainty is the model's own mean probability where it chose the structure; a low value is a reason to look, a high one no proof."),
      scored && el("p", {}, "DSC compares with the label: 1 is a perfect overlap, 0 none.")));
}

function beat(cine) {
  return el("section", {}, el("h2", {}, "Heartbeat"), el("dl", {},
    el("dt", {}, `${cine.class}, end-diastole`), el("dd", {}, `${ml(cine.ED.ml)}, frame ${cine.ED.frame + 1}`),
    el("dt", {}, `${cine.class}, end-systole`), el("dd", {}, `${ml(cine.ES.ml)}, frame ${cine.ES.frame + 1}`),
    el("dt", {}, "Stroke volume"), el("dd", {}, ml(cine.stroke_ml)),
    el("dt", {}, "Ejection fraction"), el("dd", {}, percent(cine.ejection_fraction))));
}
