// The data set as a grid of cases: doubtful first, with filters and a search.
import { api } from "../core/api.js";
import { el, icon, replace } from "../core/dom.js";
import { follow } from "../core/jobs.js";
import { link } from "../core/router.js";
import { count, doubtWords, LABELLED } from "../core/words.js";
import { explained, problem, say } from "../parts/notice.js";
import { progressBar } from "../parts/progress.js";
import { segmented } from "../parts/pane.js";

const AT_ONCE = 60; // cards that are added while scrolling
const FILTERS = {
  all: ["All", () => true],
  unlabelled: ["To label", (entry) => entry.labelled === "none"],
  labelled: ["Labelled", (entry) => entry.labelled !== "none"],
  corrected: ["Corrected", (entry) => entry.labelled === "corrected"],
  doubtful: ["Doubtful", (entry) => (entry.doubt ?? 0) >= 0.33 || entry.warnings?.length],
};
const remembered = { filter: "all", search: "", order: "doubt" };

export async function casesPage(main, { info, signal }) {
  if (!info.dataset) {
    replace(main, el("h1", {}, "Cases"), problem("No data set is open. Start `mona serve FOLDER` with the folder of your scans to see its cases here."));
    return;
  }
  replace(main, el("h1", {}, "Cases"), el("p", { class: "quiet" }, "Loading the cases"));
  let cases;
  try {
    cases = await api.cases();
  } catch (error) {
    replace(main, el("h1", {}, "Cases"), problem(explained(error), el("button", { on: { click: () => casesPage(main, { info, signal }) } }, "Try again")));
    return;
  }
  if (signal.aborted) return;
  const grid = el("ul", { class: "cases" });
  const summary = el("p", { class: "quiet", "aria-live": "polite" });
  const update = () => fillGrid(grid, summary, chosen(cases), signal);
  const labelled = cases.filter((entry) => entry.labelled !== "none").length;
  replace(main, el("div", { class: "title-row" },
    el("div", {}, el("h1", {}, info.dataset.name ?? "Cases"),
      el("p", { class: "quiet" }, `${count(cases.length, "case")}, ${labelled} labelled, ${cases.filter((entry) => entry.predicted).length} predicted`)),
    predictAll(cases, () => casesPage(main, { info, signal }), signal)),
  controls(cases, update), summary, grid);
  update();
  main.dataset.shown = "cases";
}

function controls(cases, update) {
  const filter = segmented("Which cases", Object.entries(FILTERS).map(([name, [text, test]]) => [name, `${text} ${cases.filter(test).length}`]), remembered.filter, (name) => {
    remembered.filter = name;
    update();
  });
  const search = el("input", { type: "search", placeholder: "Search by name or patient", "aria-label": "Search cases", value: remembered.search });
  search.addEventListener("input", () => {
    remembered.search = search.value;
    update();
  });
  const order = el("select", { "aria-label": "Order" }, [["doubt", "Most doubtful first"], ["name", "By name"]].map(([value, text]) =>
    el("option", { value, selected: value === remembered.order }, text)));
  order.addEventListener("change", () => {
    remembered.order = order.value;
    update();
  });
  return el("div", { class: "toolbar" }, filter.node, search, order);
}

function chosen(cases) {
  const [, test] = FILTERS[remembered.filter];
  const wanted = remembered.search.trim().toLowerCase();
  const found = cases.filter((entry) => test(entry) && `${entry.name} ${entry.patient ?? ""}`.toLowerCase().includes(wanted));
  // The server lists doubtful cases first; only the other order is made here.
  return remembered.order === "name" ? found.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true })) : found;
}

function fillGrid(grid, summary, cases, signal) {
  replace(grid);
  replace(summary, cases.length ? "" : "No case fits. Choose another filter or empty the search.");
  let shown = 0;
  const more = el("li", { class: "more" });
  const watching = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && add(), { rootMargin: "600px" });
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
  const doubt = doubtWords(entry.doubt);
  const [labelled, kind] = LABELLED[entry.labelled] ?? LABELLED.none;
  const picture = el("img", { src: api.caseThumbnail(entry), alt: "", loading: "lazy", width: 192, height: 192 });
  picture.addEventListener("error", () => picture.classList.add("broken"));
  return el("li", {}, el("a", { href: link("case", entry.name), class: "case-card" },
    el("span", { class: "thumbnail" }, picture),
    el("strong", {}, entry.name),
    el("span", { class: "badges" }, el("span", { class: `badge ${kind}` }, labelled),
      doubt ? el("span", { class: `badge ${doubt[1]}` }, doubt[0]) : entry.predicted && el("span", { class: "badge quiet" }, "Predicted"),
      entry.warnings?.length ? el("span", { class: "badge warn", title: entry.warnings.join("; ") }, icon("warn"), count(entry.warnings.length, "warning")) : null)));
}

/** Predict every case that has no prediction yet, one job each: the queue has one worker and may be cancelled. */
function predictAll(cases, reload, signal) {
  const missing = cases.filter((entry) => !entry.predicted);
  if (!missing.length) return null;
  const place = el("div", { class: "row" });
  const button = el("button", { type: "button", class: "primary" }, `Predict ${count(missing.length, "case")}`);
  button.addEventListener("click", async () => {
    const bar = progressBar("Predicting");
    let stopped = false;
    replace(place, bar.node, el("button", { type: "button", on: { click: () => { stopped = true; } } }, "Stop"));
    let failed = 0;
    for (const [done, entry] of missing.entries()) {
      if (stopped || signal.aborted) break;
      bar.set(`Predicting ${entry.name}`, done / missing.length);
      try {
        const job = await api.start({ kind: "segment-case", case: entry.name });
        const { state } = await follow(job.id, () => {}, signal);
        failed += state === "failed";
      } catch (error) {
        say(explained(error), "bad");
        break;
      }
    }
    if (signal.aborted) return;
    if (failed) say(`${count(failed, "case")} could not be predicted. Open them to see why.`, "bad");
    reload();
  });
  replace(place, button);
  return place;
}
