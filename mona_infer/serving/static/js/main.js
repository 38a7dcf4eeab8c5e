// The page: its header, and which of its parts an address shows.
import { api } from "./core/api.js";
import { el, replace } from "./core/dom.js";
import { start } from "./core/router.js";
import { casePage } from "./pages/case.js";
import { casesPage } from "./pages/cases.js";
import { comparePage } from "./pages/compare.js";
import { scanPage } from "./pages/scan.js";
import { trainingPage } from "./pages/training.js";
import { explained, problem } from "./parts/notice.js";

const PAGES = {
  "": scanPage,
  scan: scanPage,
  cases: casesPage,
  case: casePage,
  training: trainingPage,
  compare: comparePage,
};
const TABS = { "": "scan", scan: "scan", cases: "cases", case: "cases", training: "training", compare: "training" };
const main = document.getElementById("main");
let info = null;
let leaving = new AbortController();

async function loadInfo() {
  info = await api.info();
  const { model } = info;
  replace(
    document.getElementById("model"),
    model ? [el("span", { class: "quiet" }, "Model "), model.name] : "No model",
  );
  for (const tab of document.querySelectorAll("nav a[data-needs]")) tab.hidden = !info.dataset;
  return info;
}

async function show([page, ...rest]) {
  leaving.abort(); // the page that was shown stops what it follows
  leaving = new AbortController();
  delete main.dataset.shown;
  delete main.dataset.saved;
  delete main.dataset.case;
  for (const tab of document.querySelectorAll("header nav a")) {
    if (tab.dataset.tab === TABS[page]) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
  const { signal } = leaving;
  try {
    info ?? (await loadInfo());
    if (signal.aborted) return;
    await (PAGES[page] ?? scanPage)(main, { info, signal, reload: loadInfo }, ...rest);
  } catch (error) {
    if (!signal.aborted)
      replace(
        main,
        problem(
          explained(error),
          el("button", { type: "button", on: { click: () => location.reload() } }, "Try again"),
        ),
      );
  }
  if (signal.aborted) return;
  document.title = [main.querySelector("h1")?.textContent, "mona"].filter(Boolean).join(" - ");
  window.scrollTo(0, 0);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // its address would be taken for a page's
  main.focus();
});
// A file dropped beside the drop zone must not replace the page.
for (const event of ["dragover", "drop"]) window.addEventListener(event, (dragged) => dragged.preventDefault());
start(show);
