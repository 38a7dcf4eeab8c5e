// Drop a scan, watch it being segmented, look at the mask and its numbers, download it.
import { api, upload } from "../core/api.js";
import { classesOf, counts, toNumbers } from "../core/classes.js";
import { el, icon, replace } from "../core/dom.js";
import { follow } from "../core/jobs.js";
import { labels, readHeader, unzipped } from "../core/nifti.js";
import { link } from "../core/router.js";
import { bytes, stateWord, waitingWords } from "../core/words.js";
import { dropZone } from "../parts/dropzone.js";
import { legend } from "../parts/legend.js";
import { explained, problem } from "../parts/notice.js";
import { viewPane } from "../parts/pane.js";
import { progressBar } from "../parts/progress.js";
import { report } from "../parts/report.js";

export async function scanPage(main, { info, signal }, id = null, job = null) {
  if (id) await resultOf(main, info, signal, id, job);
  else start(main, info, signal);
}

function start(main, info, signal) {
  const zone = dropZone(info, (file) => send(main, info, signal, file));
  const model = info.model?.name;
  replace(main, el("div", { class: "intro" },
    el("h1", {}, "Segment a scan"),
    el("p", { class: "lead" }, model ? `Drop a scan and ${model} outlines its structures. ` : "Drop a scan. ",
      "It stays on the computer that runs mona.")), zone, el("div", { id: "earlier" }));
  earlier(document.getElementById("earlier"));
}

/** Scans segmented before: jobs survive a reload of the page and a restart of the server. */
async function earlier(place) {
  let jobs;
  try {
    jobs = (await api.jobs()).filter((job) => job.kind === "segment" && scanOf(job) && job.state !== "cancelled");
  } catch {
    return; // the header says that the server is away
  }
  if (!jobs.length) return;
  const rows = jobs.sort((a, b) => (a.created < b.created ? 1 : -1)).slice(0, 8).map((job) =>
    el("li", {}, el("a", { href: link("scan", scanOf(job), job.id) }, nameOf(job)), el("span", { class: `state ${job.state}` }, stateWord(job.state))));
  replace(place, el("h2", {}, "Earlier scans"), el("ul", { class: "plain-list" }, rows));
}

const scanOf = (job) => job.about?.scan ?? null;
const nameOf = (job) => job.about?.name ?? job.result?.case ?? "Scan";

async function send(main, info, signal, file) {
  const bar = progressBar(`Sending ${file.name}`);
  const stop = new AbortController();
  const cancel = el("button", { type: "button", on: { click: () => stop.abort() } }, "Cancel");
  replace(main, waiting(file.name, bar, cancel));
  bar.set(`Sending ${bytes(file.size)}`, 0);
  signal.addEventListener("abort", () => stop.abort());
  try {
    const scan = await upload(file, (share) => bar.set(share < 1 ? `Sending ${bytes(file.size)}` : "Reading the scan", share < 1 ? share : null), stop.signal);
    remember(scan);
    const job = await api.start({ kind: "segment", scan: scan.id });
    if (!signal.aborted) location.hash = link("scan", scan.id, job.id);
  } catch (error) {
    if (signal.aborted) return;
    start(main, info, signal);
    if (error.name !== "AbortError") main.prepend(problem(explained(error)));
  }
}

function waiting(name, bar, ...buttons) {
  return el("section", { class: "card working" }, el("h1", {}, name), bar.node, el("div", { class: "row end" }, buttons));
}

const remember = (scan) => sessionStorage.setItem(`scan-${scan.id}`, JSON.stringify(scan));
const recalled = (id) => JSON.parse(sessionStorage.getItem(`scan-${id}`) ?? "{}");

async function resultOf(main, info, signal, id, jobId) {
  const scan = recalled(id);
  const name = scan.name ?? "Scan";
  const bar = progressBar(`Segmenting ${name}`);
  const cancel = el("button", { type: "button", on: { click: () => api.cancel(jobId).catch((error) => main.prepend(problem(explained(error)))) } }, "Cancel");
  bar.set("Waiting", null);
  replace(main, waiting(name, bar, cancel));
  let job;
  try {
    job = await follow(jobId, (now) => told(bar, now), signal);
  } catch (error) {
    replace(main, problem(explained(error), again()));
    return;
  }
  if (signal.aborted) return;
  if (job.state === "done") await show(main, info, signal, id, job, { ...scan, name: scan.name ?? nameOf(job) });
  else if (job.state === "cancelled") replace(main, problem("This was cancelled.", again()));
  else replace(main, problem(job.message || "The scan could not be segmented.", again()));
}

function told(bar, job) {
  if (job.state === "waiting") bar.set(waitingWords(job.queue ?? 0), null);
  else if (job.state === "running") bar.set(job.message || "Segmenting", job.progress || null);
}

const again = () => el("a", { class: "button", href: "#/" }, "Segment another scan");

async function show(main, info, signal, id, job, scan) {
  const classes = classesOf(info);
  const [image, maskFile] = (await Promise.all([api.scanImage(id), api.scanMask(id)].map((file) => file.then(unzipped))));
  if (signal.aborted) return;
  const maskHeader = readHeader(maskFile);
  const pane = await viewPane(classes);
  const key = legend(classes, (hidden) => pane.viewer.setHidden(hidden));
  const showFrame = (frame) => {
    const numbers = toNumbers(labels(maskFile, maskHeader, frame), classes);
    pane.viewer.setMask(numbers);
    const voxel = maskHeader.spacing.reduce((product, side) => product * side) / 1000;
    key.setVolumes(counts(numbers, classes).map((n) => n * voxel));
  };
  pane.onFrame = showFrame;
  replace(main, el("div", { class: "title-row" }, el("h1", {}, scan.name), again()),
    el("div", { class: "workspace" }, pane.node,
      el("aside", { class: "side", "aria-label": "Result" },
        el("section", {}, el("h2", {}, "Structures"), key.node),
        report(job.result ?? {}, classes),
        downloads(id, scan, job))));
  signal.addEventListener("abort", () => pane.close());
  await pane.show(image);
  showFrame(0);
  main.dataset.shown = "scan";
}

function downloads(id, scan, job) {
  const dicom = scan.dicom ?? job.result?.dicom ?? false;
  const formats = [["nii.gz", "NIfTI", "for most programs"], ["seg.nrrd", "Segmentation NRRD", "for 3D Slicer"],
    ...(dicom ? [["dcm", "DICOM-SEG", "for a PACS"]] : [])];
  return el("section", {}, el("h2", {}, "Download the mask"), el("ul", { class: "downloads" }, formats.map(([format, name, use]) =>
    el("li", {}, el("a", { href: api.scanMaskAddress(id, format), download: "" }, icon("download"), el("span", {}, name), el("small", {}, use))))));
}
