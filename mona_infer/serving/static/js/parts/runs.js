// The runs of the data set: their curves, how good they are, and which of them segments.
import { api } from "../core/api.js";
import { el, replace } from "../core/dom.js";
import { link } from "../core/router.js";
import { count, score } from "../core/words.js";
import { curves, pointsOf } from "./curve.js";
import { explained, problem, say } from "./notice.js";

const DRAWN = 6; // the newest runs, one colour each
const titles = ["Run", "DSC", "Best at step", ""];

/** `page`: {runs, signal, reload, refresh} of the training page. */
export async function showRuns(page) {
  let runs;
  try {
    [runs, page.info] = await Promise.all([api.runs(), api.info()]);
  } catch (error) {
    replace(page.runs, problem(explained(error)));
    return;
  }
  if (page.signal.aborted) return;
  const head = el("h2", {}, "Runs");
  if (!runs.length) {
    replace(page.runs, head, el("p", { class: "quiet" }, "No training yet. Its curve and model will appear here."));
    return;
  }
  const used = page.info.model?.name;
  const drawn = runs.slice(-DRAWN);
  const series = drawn.map(({ name, curve }) => ({ name, points: pointsOf(curve), strong: name === used }));
  const words = "DSC is measured on validation scans, which training does not learn from.";
  const rows = runs.map((run) => row(page, run, run.name === used, drawn.indexOf(run))).reverse();
  const table = el("table", { class: "runs" }, el("thead", {}, el("tr", {}, titles.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows));
  replace(
    page.runs,
    head,
    el("p", { class: "quiet" }, `${count(runs.length, "run")}. ${words}`),
    curves(series, { label: "DSC of each run over its steps" }),
    el("div", { class: "scroll" }, table),
  );
}

function row(page, run, used, series) {
  const key = el("span", { class: `key ${used ? "strong" : `series-${series}`}`, hidden: series < 0 });
  const state = used
    ? el("span", { class: "badge good" }, "In use")
    : run.model
      ? useButton(page, run.name)
      : el("span", { class: "badge quiet" }, run.finished ? "No model" : "Not finished");
  const compare = run.model && el("a", { class: "button", href: link("compare", run.name) }, "Compare");
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, key, run.name),
    el("td", { data: { title: titles[1] } }, score(run.dsc)),
    el("td", { data: { title: titles[2] } }, run.best_step?.toLocaleString("en") ?? "–"),
    el("td", {}, el("div", { class: "row end" }, state, compare)),
  );
}

export function useButton(page, run, kind = "") {
  const button = el("button", { type: "button", class: `use ${kind}`, data: { run } }, "Use this model");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await api.useModel({ run });
      say(`${run} is now the model that segments.`);
      await page.reload();
      await page.refresh();
    } catch (error) {
      button.disabled = false;
      say(explained(error), "bad");
    }
  });
  return button;
}
