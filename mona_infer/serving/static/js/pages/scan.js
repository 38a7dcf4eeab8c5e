// Drop a scan, watch it being segmented, look at the mask and its numbers, download it.
import { api, upload } from "../core/api.js";
import { classesOf, counts, toNumbers } from "../core/classes.js";
import { el, icon, replace } from "../core/dom.js";
import { follow, jobsBefore } from "../core/jobs.js";
import { labels, readHeader, unzipped } from "../core/nifti.js";
import { link } from "../core/router.js";
import { bytes, listed, ml, stateWord, waitingWords } from "../core/words.js";
import { ask } from "../parts/dialog.js";
import { dropZone } from "../parts/dropzone.js";
import { legend } from "../parts/legend.js";
import { explained, problem, say } from "../parts/notice.js";
import { viewPane } from "../parts/pane.js";
import { progressBar } from "../parts/progress.js";
import { columns, meaning, report } from "../parts/report.js";

export async function scanPage(main, { info, signal }, id = null, job = null) {
  if (id) await resultOf(main, info, signal, id, job);
  else start(main, info, signal);
}

function start(main, info, signal) {
  const zone = dropZone(info, (file) => send(main, info, signal, file));
  const found = classesOf(info)
    .slice(1)
    .map((entry) => entry.name);
  replace(
    main,
    el(
      "div",
      { class: "intro" },
      el("h1", {}, "Segment a scan"),
      el(
        "p",
        { class: "lead" },
        info.model ? `The model outlines ${listed(found)}. ` : "",
        "Your scan stays on the computer that runs mona.",
      ),
      info.model ? null : problem("There is no model yet. Train one, or start `mona serve` with --model FILE."),
    ),
    info.model && zone,
    el("div", { id: "earlier" }),
  );
  earlier(document.getElementById("earlier"));
}

/** Scans sent before: they survive a reload of the page and a restart of the server. */
async function earlier(place) {
  let scans;
  let jobs;
  try {
    [scans, jobs] = await Promise.all([api.scans(), api.jobs()]);
  } catch {
    return; // whatever is done next says what is wrong
  }
  if (!scans.length) return;
  const latest = new Map(jobs.filter((job) => job.kind === "segment").map((job) => [job.scan, job]));
  const rows = scans
    .slice(-8)
    .reverse()
    .map((scan) => {
      const job = latest.get(scan.id);
      return el(
        "li",
        {},
        el("a", { href: link("scan", scan.id, ...(job ? [job.id] : [])) }, scan.name),
        el("span", { class: `state ${job?.state ?? ""}` }, job ? stateWord(job.state) : "Not segmented"),
      );
    });
  replace(place, el("h2", {}, "Earlier scans"), el("ul", { class: "plain-list" }, rows));
}

async function send(main, info, signal, file) {
  const bar = progressBar(`Sending ${file.name}`);
  const stop = new AbortController();
  const cancel = el("button", { type: "button", on: { click: () => stop.abort() } }, "Cancel");
  replace(main, waiting(file.name, bar, cancel));
  bar.set(`Sending ${bytes(file.size)}`, 0);
  signal.addEventListener("abort", () => stop.abort());
  try {
    const scan = await upload(
      file,
      (share) => bar.set(share < 1 ? `Sending ${bytes(file.size)}` : "Reading the scan", share < 1 ? share : null),
      stop.signal,
    );
    const job = await api.start({ kind: "segment", scan: scan.id });
    if (!signal.aborted) location.hash = link("scan", scan.id, job.id);
  } catch (error) {
    if (signal.aborted) return;
    start(main, info, signal);
    if (error.name !== "AbortError") main.prepend(problem(explained(error)));
  }
}

function waiting(name, bar, ...buttons) {
  return el(
    "section",
    { class: "card working" },
    el("h1", {}, name),
    bar.node,
    el("div", { class: "row end" }, buttons),
  );
}

async function resultOf(main, info, signal, id, jobId) {
  const bar = progressBar("Segmenting");
  try {
    let scan = await api.scan(id);
    const cancel = el(
      "button",
      { type: "button", on: { click: () => api.cancel(jobId).catch((error) => say(explained(error), "bad")) } },
      "Cancel",
    );
    bar.set("Waiting", null);
    replace(main, waiting(scan.name, bar, cancel));
    const job = await follow(
      jobId ?? (await api.start({ kind: "segment", scan: id })).id,
      (now) => told(bar, now),
      signal,
    );
    if (signal.aborted) return;
    if (job.refused) {
      const anyway = el("button", { type: "button" }, "Segment it anyway");
      anyway.addEventListener("click", () => segmentAnyway(id));
      replace(main, problem(job.message, anyway, again()));
      return;
    }
    if (job.state === "cancelled") throw new Error("This was cancelled.");
    if (job.state !== "done") throw new Error(job.message || "The scan could not be segmented.");
    scan = await api.scan(id);
    await show(main, info, signal, scan);
  } catch (error) {
    if (!signal.aborted) replace(main, problem(explained(error), again()));
  }
}

async function segmentAnyway(id) {
  try {
    const job = await api.start({ kind: "segment", scan: id, force: true });
    location.hash = link("scan", id, job.id);
  } catch (error) {
    say(explained(error), "bad");
  }
}

async function told(bar, job) {
  bar.job = job;
  if (job.state === "waiting") {
    const before = await jobsBefore(job).catch(() => 0);
    if (bar.job === job) bar.set(waitingWords(before), null); // it may have begun meanwhile
  }
  if (job.state === "running") bar.set(job.message || "Segmenting", job.progress || null);
}

const again = () => el("a", { class: "button", href: "#/" }, "Segment another scan");

async function show(main, info, signal, scan) {
  const classes = classesOf(info);
  const result = scan.segmented.report ?? {};
  const [image, maskFile] = await Promise.all(
    [api.scanImage(scan.id), api.scanMask(scan.id)].map((file) => file.then(unzipped)),
  );
  if (signal.aborted) return;
  const maskHeader = readHeader(maskFile);
  const pane = await viewPane(classes);
  const key = legend(classes, (hidden) => pane.viewer.setHidden(hidden));
  const showFrame = (frame) => {
    const numbers = toNumbers(labels(maskFile, maskHeader, frame), classes);
    pane.viewer.setMask(numbers);
    const voxel = maskHeader.spacing.reduce((product, side) => product * side) / 1000;
    key.set([["Volume", counts(numbers, classes).map((n) => ml(n * voxel))], ...columns(result, frame, classes)]);
  };
  pane.onFrame = showFrame;
  replace(
    main,
    el("div", { class: "title-row" }, el("h1", {}, scan.name), again()),
    el(
      "div",
      { class: "workspace" },
      pane.node,
      el(
        "aside",
        { class: "side", "aria-label": "Result" },
        el("section", {}, el("h2", {}, "Structures"), key.node, meaning()),
        report(result),
        downloads(info, scan),
        forget(scan),
      ),
    ),
  );
  signal.addEventListener("abort", () => pane.close());
  await pane.show(image);
  if (signal.aborted) return;
  showFrame(0);
  main.dataset.shown = "scan";
}

function downloads(info, scan) {
  const formats = [
    ["nii.gz", "NIfTI", "most programs"],
    ["seg.nrrd", "Segmentation NRRD", "3D Slicer"],
    ...(scan.dicom && info.dicom_seg ? [["dcm", "DICOM-SEG", "a PACS"]] : []),
  ];
  return el(
    "section",
    {},
    el("h2", {}, "Download the mask"),
    el(
      "ul",
      { class: "downloads" },
      formats.map(([format, name, use]) =>
        el(
          "li",
          {},
          el(
            "a",
            { href: api.scanMaskAddress(scan.id, format), download: "" },
            icon("download"),
            el("span", {}, name),
            el("small", {}, use),
          ),
        ),
      ),
    ),
  );
}

function forget(scan) {
  const button = el("button", { type: "button" }, "Delete this scan from the server");
  button.addEventListener("click", async () => {
    if (
      (await ask(
        "Delete this scan?",
        "The scan and its mask are removed from the server. Your own file stays where it is.",
        [
          ["yes", "Delete", "primary"],
          ["no", "Keep"],
        ],
      )) !== "yes"
    )
      return;
    try {
      await api.deleteScan(scan.id);
      location.hash = "#/";
    } catch (error) {
      say(explained(error), "bad");
    }
  });
  return el("div", { class: "stack" }, button);
}
