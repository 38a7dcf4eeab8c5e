// Before and after a training: the masks of the model in use and of another, side by side on one case.
import { api } from "../core/api.js";
import { classesOf, counts, css, toNumbers } from "../core/classes.js";
import { el, replace } from "../core/dom.js";
import { follow } from "../core/jobs.js";
import { labels, readHeader, unzipped } from "../core/nifti.js";
import { link } from "../core/router.js";
import { count, ml, score } from "../core/words.js";
import { explained, problem, say } from "../parts/notice.js";
import { slider } from "../parts/pane.js";
import { progressBar } from "../parts/progress.js";
import { PlainViewer } from "../viewer/plain.js";

export async function comparePage(main, context, run = "") {
  const { signal } = context;
  replace(main, el("h1", {}, "Before and after"), el("p", { class: "quiet" }, "Loading"));
  try {
    const [info, cases] = await Promise.all([context.reload(), api.cases()]);
    if (signal.aborted) return;
    const { models } = info;
    if (models.length < 2) throw new Error("There is only one model here yet. Train another one to compare with it.");
    const used = info.model?.name;
    const after = [run, used, models.at(-1)].find((name) => models.includes(name));
    const before = [used, ...[...models].reverse()].find((name) => name && name !== after);
    // A labelled test scan tells most: it has a DSC, and neither model learnt from it.
    const best = cases.find((entry) => entry.test && entry.labelled !== "none") ?? cases[0];
    const chosen = { name: best?.name, before, after };
    const place = el("div", {});
    replace(
      main,
      el("nav", { class: "crumbs", "aria-label": "Place" }, el("a", { href: link("training") }, "Training")),
      el(
        "div",
        { class: "title-row" },
        el(
          "div",
          {},
          el("h1", {}, "Before and after"),
          el("p", { class: "quiet" }, "Two models on the same case, beside its label if it has one."),
        ),
      ),
      choices(cases, models, chosen, () => compare(place, { ...context, info }, chosen)),
      place,
    );
    main.dataset.shown = "compare";
  } catch (error) {
    if (!signal.aborted)
      replace(main, problem(explained(error), el("a", { class: "button", href: link("training") }, "Training")));
  }
}

function choices(cases, models, chosen, begin) {
  const select = (key, label, names) => {
    const field = el(
      "select",
      { id: key },
      names.map((name) => el("option", { value: name, selected: name === chosen[key] }, name)),
    );
    field.addEventListener("change", () => {
      chosen[key] = field.value;
    });
    return el("label", {}, label, field);
  };
  return el(
    "div",
    { class: "card form" },
    el(
      "div",
      { class: "fields" },
      select(
        "name",
        "Case",
        cases.map((entry) => entry.name),
      ),
      select("before", "Before", models),
      select("after", "After", models),
    ),
    el(
      "div",
      { class: "row end" },
      el("button", { type: "button", class: "primary", id: "compare", on: { click: begin } }, "Compare"),
    ),
  );
}

/** Segment the case with both models, the server keeping the masks of each, and draw them beside the label. */
async function compare(place, { info, signal, reload }, { name, before, after }) {
  const bar = progressBar("Comparing");
  delete place.dataset.compared;
  replace(place, el("section", { class: "card working" }, bar.node));
  try {
    const classes = classesOf(info, "dataset");
    const image = await unzipped(await api.caseFile(name, "image"));
    const masks = [];
    for (const [title, model] of [
      ["Before", before],
      ["After", after],
    ]) {
      masks.push({ title, model, ...(await maskOf(name, model, classes, bar, signal)) });
      if (signal.aborted) return;
    }
    const entry = (await api.cases()).find((found) => found.name === name);
    if (entry?.labelled !== "none") {
      masks.push({
        title: "Label",
        model: null,
        ids: await idsOf(await api.caseFile(name, "label"), classes),
        scores: null,
      });
    }
    if (!signal.aborted)
      await beside(place, { image, masks, classes, run: after, current: info.model?.name, signal, reload });
  } catch (error) {
    if (!signal.aborted) replace(place, problem(explained(error)));
  }
}

async function maskOf(name, model, classes, bar, signal) {
  bar.set(`Segmenting with ${model}`, null);
  const job = await follow(
    (await api.start({ kind: "segment-case", case: name, model })).id,
    (now) => bar.set(`Segmenting with ${model}`, now.progress || null),
    signal,
  );
  if (signal.aborted) return {};
  if (job.state !== "done") throw new Error(job.message || `${model} could not segment ${name}.`);
  const file = await api.caseFile(name, "prediction", `?model=${encodeURIComponent(model)}`);
  return { ids: await idsOf(file, classes), scores: scoresOf(job.result) };
}

async function idsOf(file, classes) {
  const mask = await unzipped(file);
  return toNumbers(labels(mask, readHeader(mask)), classes);
}

/** DSC by class, where the case has a label. */
function scoresOf(result) {
  const scores = result?.scores ?? result?.report?.scores;
  return scores ? Object.fromEntries(Object.entries(scores).map(([name, value]) => [name, value?.dsc ?? value])) : null;
}

async function beside(place, { image, masks, classes, run, current, signal, reload }) {
  const { spacing } = readHeader(image);
  const voxelMl = spacing.reduce((product, side) => product * side) / 1000;
  const figures = masks.map((mask) => figure(mask, classes, voxelMl));
  const at = slider(
    "Slice",
    { min: 0, max: 1, step: 1 },
    (value) => figures.forEach(({ viewer }) => viewer.goTo(value)),
    (value) => `${value + 1} of ${figures[0].viewer.slices ?? 1}`,
  );
  replace(
    place,
    el(
      "div",
      { class: "row between compare-head" },
      el("p", {}, difference(masks)),
      run === current ? null : useIt(run, reload),
    ),
    el(
      "div",
      { class: "beside" },
      figures.map(({ node }) => node),
    ),
    el("div", { class: "card compare-slice" }, at.node),
  );
  for (const [n, { viewer }] of figures.entries()) {
    await viewer.show(image);
    viewer.setMask(masks[n].ids);
    // Whichever is scrolled, the others follow; a viewer that is there already says nothing again.
    viewer.on("slice", (slice) => {
      at.set(slice);
      for (const other of figures) if (other.viewer.slice !== slice) other.viewer.goTo(slice);
    });
    signal.addEventListener("abort", () => viewer.close());
  }
  const { viewer } = figures[0];
  at.limit(0, viewer.slices - 1);
  viewer.goTo(fullest(viewer));
  place.dataset.compared = "true";
}

function figure({ title, model, ids, scores }, classes, voxelMl) {
  const stage = el("div", { class: "stage" });
  const viewer = new PlainViewer(
    stage,
    classes.map((entry) => entry.rgb),
  );
  const found = counts(ids, classes);
  const rows = classes
    .slice(1)
    .map((entry, n) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, el("span", { class: "swatch", style: { "--class": css(entry.rgb) } }), entry.name),
        el("td", {}, ml(found[n + 1] * voxelMl)),
        scores && el("td", {}, score(scores[entry.name])),
      ),
    );
  return {
    viewer,
    node: el(
      "figure",
      {},
      el("figcaption", {}, title, el("span", { class: "quiet" }, model ?? "as drawn by hand")),
      stage,
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, "Structure"),
            el("th", { scope: "col" }, "Volume"),
            scores && el("th", { scope: "col" }, "DSC"),
          ),
        ),
        el("tbody", {}, rows),
      ),
    ),
  };
}

function difference(masks) {
  const [before, after] = ["Before", "After"].map((title) => masks.find((mask) => mask.title === title));
  let changed = 0;
  for (let n = 0; n < before.ids.length; n += 1) if (before.ids[n] !== after.ids[n]) changed += 1;
  return changed
    ? `The masks of the two models differ in ${count(changed, "voxel")}.`
    : "The masks of the two models are the same.";
}

/** The slice with most of the mask: there is something to compare. */
function fullest(viewer) {
  const sums = new Array(viewer.slices).fill(0);
  const stride = [1, viewer.order.dims[0], viewer.order.dims[0] * viewer.order.dims[1]][viewer.axis];
  viewer.ids.forEach((id, place) => {
    if (id) sums[Math.floor(place / stride) % viewer.slices] += 1;
  });
  return sums.indexOf(Math.max(...sums));
}

function useIt(run, reload) {
  const button = el("button", { type: "button", class: "primary use" }, `Use ${run}`);
  button.addEventListener("click", async () => {
    try {
      await api.useModel({ name: run });
      await reload();
      button.disabled = true;
      say(`${run} is now the model that segments.`);
    } catch (error) {
      say(explained(error), "bad");
    }
  });
  return button;
}
