// Train from the labels at hand, watch the curve, compare runs, choose the model that is used.
import { api } from "../core/api.js";
import { el, replace } from "../core/dom.js";
import { ended, follow } from "../core/jobs.js";
import { link } from "../core/router.js";
import { duration, score, stateWord } from "../core/words.js";
import { growingCurve, pointsOf } from "../parts/curve.js";
import { explained, note, problem, say } from "../parts/notice.js";
import { progressBar } from "../parts/progress.js";
import { showRuns, useButton } from "../parts/runs.js";

const PRESETS = {
  quick: "Quick: about 10 minutes, 4,000 steps",
  cpu: "Better: less than an hour, 6,000 steps",
  gpu: "With a GPU: 30,000 steps",
  paper: "As published: GPU, 60,000 steps",
};
const RATIOS = [
  ["", "All labels"],
  ["0.5", "Half of them"],
  ["0.2", "20 %"],
  ["0.1", "10 %"],
  ["0.05", "5 %"],
];

export async function trainingPage(main, { info, signal, reload }) {
  const why = cannot(info);
  if (why) {
    replace(main, el("h1", {}, "Training"), problem(why));
    return;
  }
  const now = el("section", { class: "card", hidden: true });
  const runs = el("section", {});
  const page = { info, signal, now, runs, reload, refresh: () => showRuns(page) };
  replace(
    main,
    el(
      "div",
      { class: "intro" },
      el("h1", {}, "Training"),
      el(
        "p",
        { class: "lead" },
        "Train a model on this data set: the labels you gave and corrected, and every other scan without one.",
      ),
    ),
    form(page),
    now,
    runs,
  );
  await Promise.all([resume(page), showRuns(page)]);
  main.dataset.shown = "training";
}

function cannot(info) {
  if (!info.dataset)
    return "No data set is open. Start `mona serve FOLDER` with the folder of your scans to train on them.";
  if (info.dataset.trains === false) {
    return "This folder has no dataset.json, so mona cannot train on it. `mona data check FOLDER` says what it needs.";
  }
  if (!info.training)
    return "This installation cannot train. `mona doctor` on the server shows the command that installs what is missing.";
  return null;
}

function form(page) {
  const choose = (name, choices, chosen) =>
    el(
      "select",
      { name, id: name },
      choices.map(([value, text]) => el("option", { value, selected: value === chosen }, text)),
    );
  const presets = page.info.presets ?? Object.keys(PRESETS);
  const fields = el(
    "form",
    { class: "card form" },
    el(
      "div",
      { class: "fields" },
      el(
        "label",
        {},
        "How long, on two cores",
        choose(
          "preset",
          presets.map((name) => [name, PRESETS[name] ?? name]),
          presets.includes("quick") ? "quick" : presets[0],
        ),
      ),
      el("label", {}, "Labels to learn from", choose("ratio", RATIOS, "")),
    ),
    el(
      "details",
      {},
      el("summary", {}, "More settings"),
      el(
        "div",
        { class: "fields" },
        el(
          "label",
          {},
          "Steps",
          el("input", { type: "number", name: "steps", min: 1, max: 1000000, placeholder: "as the choice above" }),
        ),
        el("label", {}, "Seed", el("input", { type: "number", name: "seed", min: 0, placeholder: "0" })),
      ),
    ),
    el("div", { class: "row end" }, el("button", { type: "submit", class: "primary", id: "train" }, "Start training")),
  );
  fields.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(fields)].filter(([, value]) => value !== ""));
    const job = { kind: "train", preset: given.preset };
    for (const name of ["ratio", "steps", "seed"]) if (given[name] !== undefined) job[name] = Number(given[name]);
    const button = fields.querySelector("#train");
    button.disabled = true;
    try {
      watch(page, (await api.start(job)).id);
    } catch (error) {
      say(explained(error), "bad");
    } finally {
      button.disabled = false;
    }
  });
  return fields;
}

/** A training that runs already, if the page was reloaded or opened elsewhere. */
async function resume(page) {
  try {
    const job = (await api.jobs()).filter((entry) => entry.kind === "train" && !ended(entry)).at(-1);
    if (job) watch(page, job.id);
  } catch {
    // the runs below say what is wrong
  }
}

async function watch(page, id) {
  const { now, signal } = page;
  const bar = progressBar("Training");
  const curve = growingCurve("DSC of this training so far");
  const cancel = el(
    "button",
    { type: "button", on: { click: () => api.cancel(id).catch((error) => say(explained(error), "bad")) } },
    "Cancel training",
  );
  now.hidden = false;
  replace(now, el("div", { class: "title-row" }, el("h2", {}, "This training"), cancel), bar.node, curve.node);
  curve.set([], 0);
  bar.set("Waiting", null);
  let begun = null;
  try {
    const job = await follow(
      id,
      (state) => {
        begun ??= state.started ? new Date(state.started) : null;
        const spent = begun ? (Date.now() - begun) / 1000 : 0;
        const left =
          state.progress > 0.02 && spent > 5
            ? `, about ${duration((spent * (1 - state.progress)) / state.progress)} left`
            : "";
        if (state.state === "waiting") bar.set("Waiting for another training to end", null);
        else bar.set((state.message || stateWord(state.state)) + left, state.progress || null);
        curve.set(pointsOf(state.curve), 0);
      },
      signal,
    );
    if (signal.aborted) return;
    cancel.remove();
    finished(page, job);
    await showRuns(page);
  } catch (error) {
    if (!signal.aborted) replace(now, problem(explained(error)));
  }
}

function finished(page, job) {
  const run = job.result?.run ?? job.result?.name;
  if (job.state === "done") {
    page.now.append(
      note(`Training is done${Number.isFinite(job.result?.dsc) ? `: DSC ${score(job.result.dsc)}` : ""}.`),
      el(
        "div",
        { class: "row end" },
        run && useButton(page, run, "primary"),
        run && el("a", { class: "button", href: link("compare", run) }, "Compare before and after"),
      ),
    );
  } else if (job.state === "cancelled") {
    page.now.append(note("Training was cancelled.", "warn"));
  } else {
    page.now.append(problem(job.message || "Training failed. The server's log says why."));
  }
}
