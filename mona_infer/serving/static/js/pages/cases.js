// The data set as a grid of cases: doubtful first, with filters and a search.
import { api } from "../core/api.js";
import { el, icon, replace } from "../core/dom.js";
import { ended } from "../core/jobs.js";
import { link } from "../core/router.js";
import { count, certainty, LABELLED } from "../core/words.js";
import { explained, problem, say } from "../parts/notice.js";
import { progressBar } from "../parts/progress.js";
import { segmented } from "../parts/pane.js";

const AT_ONCE = 60; // cards that are added while scrolling
const LOOK = 700; // ms between looks at the queue
const FILTERS = {
  all: ["All", () => true],
  unlabelled: ["To label", (entry) => entry.labelled === "none"],
  labelled: ["Labelled", (entry) => entry.labelled !== "none"],
  corrected: ["Corrected", (entry) => entry.labelled === "corrected"],
  doubtful: ["Doubtful", (entry) => (entry.doubt ?? 0) >= 0.15 || entry.warnings?.length],
};
const remembered = { filter: "all", search: "", order: "doubt" };

export async function casesPage(main, { info, signal }) {
  if (!info.dataset) {
    replace(
      main,
      el("h1", {}, "Cases"),
      problem("No data set is open. Start `mona serve FOLDER` with the folder of your scans to see its cases here."),
    );
    return;
  }
  replace(main, el("h1", {}, "Cases"), el("p", { class: "quiet" }, "Loading the cases"));
  let cases;
  try {
    cases = await api.cases();
  } catch (error) {
    replace(
      main,
      el("h1", {}, "Cases"),
      problem(explained(error), el("button", { on: { click: () => casesPage(main, { info, signal }) } }, "Try again")),
    );
    return;
  }
  if (signal.aborted) return;
  const grid = el("ul", { class: "cases" });
  const summary = el("p", { class: "quiet", "aria-live": "polite" });
  const update = () => fillGrid(grid, summary, chosen(cases), signal);
  const labelled = cases.filter((entry) => entry.labelled !== "none").length;
  const predicted = cases.filter((entry) => entry.predicted).length;
  replace(
    main,
    el(
      "div",
      { class: "title-row" },
      el(
        "div",
        {},
        el("h1", {}, info.dataset.name ?? "Cases"),
        el("p", { class: "quiet" }, `${count(cases.length, "case")}, ${labelled} labelled, ${predicted} predicted`),
      ),
      info.model && predictAll(cases, () => casesPage(main, { info, signal }), signal),
    ),
    controls(cases, update),
    summary,
    grid,
  );
  update();
  main.dataset.shown = "cases";
}

function controls(cases, update) {
  const filter = segmented(
    "Which cases",
    Object.entries(FILTERS).map(([name, [text, test]]) => [name, `${text} ${cases.filter(test).length}`]),
    remembered.filter,
    (name) => {
      remembered.filter = name;
      update();
    },
  );
  const search = el("input", {
    type: "search",
    placeholder: "Search by name or patient",
    "aria-label": "Search cases",
    value: remembered.search,
  });
  search.addEventListener("input", () => {
    remembered.search = search.value;
    update();
  });
  const order = el(
    "select",
    { "aria-label": "Order" },
    [
      ["doubt", "Most doubtful first"],
      ["name", "By name"],
    ].map(([value, text]) => el("option", { value, selected: value === remembered.order }, text)),
  );
  order.addEventListener("change", () => {
    remembered.order = order.value;
    update();
  });
  return el("div", { class: "toolbar" }, filter.node, search, order);
}

function chosen(cases) {
  const [, test] = FILTERS[remembered.filter];
  const wanted = remembered.search.trim().toLowerCase();
  const found = cases.filter(
    (entry) => test(entry) && `${entry.name} ${entry.patient ?? ""}`.toLowerCase().includes(wanted),
  );
  // The server lists doubtful cases first; only the other order is made here.
  return remembered.order === "name"
    ? found.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }))
    : found;
}

function fillGrid(grid, summary, cases, signal) {
  replace(grid);
  replace(summary, cases.length ? "" : "No case matches. Choose another filter or clear the search.");
  let shown = 0;
  const more = el("li", { class: "more" });
  const watching = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && add(), {
    rootMargin: "600px",
  });
  const add = () => {
    more.remove();
    grid.append(...cases.slice(shown, shown + AT_ONCE).map(card));
    shown += AT_ONCE;
    if (shown < cases.length) grid.append(more);
  };
  signal.addEventListener("abort", () => watching.disconnect());
  add();
  watching.observe(more);
}

function card(entry) {
  const doubt = certainty(entry.doubt);
  const [labelled, kind] = LABELLED[entry.labelled] ?? LABELLED.none;
  const picture = el("img", { src: api.caseThumbnail(entry), alt: "", loading: "lazy", width: 192, height: 192 });
  picture.addEventListener("error", () => picture.classList.add("broken"));
  return el(
    "li",
    {},
    el(
      "a",
      { href: link("case", entry.name), class: "case-card" },
      el("span", { class: "thumbnail" }, picture),
      el("strong", {}, entry.name),
      el(
        "span",
        { class: "badges" },
        el("span", { class: `badge ${kind}` }, labelled),
        doubt
          ? el("span", { class: `badge ${doubt[1]}` }, doubt[0])
          : entry.predicted && el("span", { class: "badge quiet" }, "Predicted"),
        entry.warnings?.length
          ? el(
              "span",
              { class: "badge warn", title: entry.warnings.join("; ") },
              icon("warn"),
              count(entry.warnings.length, "warning"),
            )
          : null,
      ),
    ),
  );
}

/** Predict what has no prediction yet.  The jobs wait on the server, so the reader may leave this page. */
function predictAll(cases, reload, signal) {
  const missing = cases.filter((entry) => !entry.predicted);
  const place = el("div", { class: "row" });
  const offer = () => {
    const button = el("button", { type: "button", class: "primary" }, `Predict ${count(missing.length, "case")}`);
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        for (const entry of missing) await api.start({ kind: "segment-case", case: entry.name });
      } catch (error) {
        say(explained(error), "bad");
      }
      watchQueue(place, reload, signal);
    });
    replace(place, missing.length > 0 && button);
  };
  api.jobs().then((jobs) => (jobs.some(pending) ? watchQueue(place, reload, signal) : offer()), offer);
  return place;
}

const pending = (job) => job.kind === "segment-case" && !ended(job);

async function watchQueue(place, reload, signal) {
  const bar = progressBar("Predicting");
  const stop = el("button", { type: "button" }, "Stop");
  const left = async () => (await api.jobs()).filter(pending);
  stop.addEventListener("click", async () => {
    stop.disabled = true;
    await Promise.allSettled((await left()).map((job) => api.cancel(job.id)));
  });
  replace(place, bar.node, stop);
  let most = 0;
  try {
    for (let jobs = await left(); jobs.length && !signal.aborted; jobs = await left()) {
      most = Math.max(most, jobs.length);
      const now = jobs.find((job) => job.state === "running") ?? jobs[0];
      bar.set(`Predicting ${now.case}`, 1 - jobs.length / most);
      await new Promise((resolve) => setTimeout(resolve, LOOK));
    }
  } catch (error) {
    say(explained(error), "bad");
  }
  if (!signal.aborted) reload();
}
