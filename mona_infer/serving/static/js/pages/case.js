// One case of the data set: look at its label and prediction, correct, save.
import { api } from "../core/api.js";
import { classesOf, counts, toIds, toNumbers, withIdsOf } from "../core/classes.js";
import { el, icon, replace } from "../core/dom.js";
import { follow } from "../core/jobs.js";
import { labelFile, labels, readHeader, unzipped, zipped } from "../core/nifti.js";
import { guardWith, link } from "../core/router.js";
import { certainty, count, LABELLED, ml, score } from "../core/words.js";
import { DrawingSession } from "../drawing/session.js";
import { drawingKey, toolbar } from "../drawing/toolbar.js";
import { ask } from "../parts/dialog.js";
import { legend } from "../parts/legend.js";
import { explained, problem, say } from "../parts/notice.js";
import { segmented, viewPane } from "../parts/pane.js";
import { progressBar } from "../parts/progress.js";

export async function casePage(main, { info, signal }, name) {
  replace(main, el("h1", {}, name), el("p", { class: "quiet" }, "Loading the scan"));
  try {
    const cases = await api.cases();
    const at = cases.findIndex((entry) => entry.name === name);
    if (at < 0) throw new Error(`There is no case ${name} in this data set.`);
    const page = new CasePage(main, info, signal, cases, at);
    await page.load();
  } catch (error) {
    if (!signal.aborted)
      replace(main, problem(explained(error), el("a", { class: "button", href: link("cases") }, "All cases")));
  }
}

class CasePage {
  constructor(main, info, signal, cases, at) {
    Object.assign(this, { main, info, signal, cases, at, entry: cases[at] });
  }

  async load() {
    const { entry } = this;
    const file = async (what) => unzipped(await api.caseFile(entry.name, what));
    const [image, label, prediction] = await Promise.all([
      file("image"),
      entry.labelled === "none" ? null : file("label"),
      entry.predicted ? file("prediction") : null,
    ]);
    if (this.signal.aborted) return;
    this.image = image;
    const ids = [label, prediction].map((mask) => mask && labels(mask, readHeader(mask)));
    this.classes = ids.reduce((classes, found) => withIdsOf(found ?? [], classes), classesOf(this.info, "dataset"));
    [this.label, this.prediction] = ids.map((found) => found && toNumbers(found, this.classes));
    const header = readHeader(image);
    this.voxelMl = header.spacing.reduce((product, side) => product * side) / 1000;
    this.voxels = header.dims[0] * header.dims[1] * header.dims[2];
    this.pane = await viewPane(this.classes);
    this.signal.addEventListener("abort", () => this.#leave());
    this.#layout();
    await this.pane.show(image);
    if (this.signal.aborted) return;
    this.session = new DrawingSession(this.pane.viewer, this.classes);
    this.session.on("change", () => this.#changed());
    this.#choose(this.label ? "label" : this.prediction ? "prediction" : "none");
    document.addEventListener("keydown", this.#keys);
    this.main.dataset.case = this.entry.name;
    this.main.dataset.shown = "case";
  }

  #layout() {
    const { entry, cases, at } = this;
    this.legend = legend(this.classes, (hidden) => this.pane.viewer.setHidden(hidden));
    this.state = el("div", { class: "badges" });
    this.side = el("section", {});
    this.actions = el("div", { class: "stack" });
    const turn = (by, text, name) => {
      const other = cases[at + by];
      return other
        ? el(
            "a",
            { class: "button", href: link("case", other.name), title: other.name },
            by < 0 && icon(name),
            text,
            by > 0 && icon(name),
          )
        : null;
    };
    replace(
      this.main,
      el(
        "nav",
        { class: "crumbs", "aria-label": "Place" },
        el("a", { href: link("cases") }, "Cases"),
        el("span", {}, `${at + 1} of ${cases.length}`),
      ),
      el(
        "div",
        { class: "title-row" },
        el("div", {}, el("h1", {}, entry.name), this.state),
        el("div", { class: "row" }, turn(-1, "Previous", "back"), turn(1, "Next", "next")),
      ),
      el(
        "div",
        { class: "workspace" },
        this.pane.node,
        el(
          "aside",
          { class: "side", "aria-label": "Case" },
          this.side,
          this.actions,
          el("section", {}, el("h2", {}, "Structures"), this.legend.node),
        ),
      ),
    );
    this.#badges();
    this.#sideChoices();
    this.#actionButtons();
  }

  #badges() {
    const { entry } = this;
    const [text, kind] = LABELLED[entry.labelled];
    const doubt = certainty(entry.doubt);
    replace(
      this.state,
      el("span", { class: `badge ${kind}` }, text),
      entry.test && el("span", { class: "badge quiet" }, "Test scan"),
      doubt && el("span", { class: `badge ${doubt[1]}` }, doubt[0]),
      entry.patient && entry.patient !== entry.name
        ? el("span", { class: "badge quiet" }, `Patient ${entry.patient}`)
        : null,
    );
  }

  #sideChoices() {
    const choices = [
      ["label", "Label"],
      ["prediction", "Prediction"],
      ["none", "Scan only"],
    ].filter(([what]) => what === "none" || this[what]);
    this.choice = segmented("Mask shown", choices, "none", (what) => this.#choose(what));
    const { warnings } = this.entry;
    replace(
      this.side,
      el("h2", {}, "Shown"),
      this.choice.node,
      warnings?.length
        ? el(
            "ul",
            { class: "warnings" },
            warnings.map((text) => el("li", {}, icon("warn"), el("span", {}, text))),
          )
        : null,
    );
  }

  #actionButtons() {
    const draws = this.pane.viewer.canDraw;
    this.predict = el(
      "button",
      { type: "button", on: { click: () => this.#predict() } },
      this.prediction ? "Predict again" : "Predict this case",
    );
    replace(
      this.actions,
      draws &&
        el(
          "button",
          { type: "button", class: "primary", id: "correct", on: { click: () => this.#begin() } },
          icon("pen"),
          this.label ? "Correct the label" : "Draw the label",
        ),
      this.info.model && this.predict,
    );
  }

  /** Show a mask; while correcting, there is only the drawing. */
  #choose(what) {
    this.shown = what;
    this.choice.set(what);
    const numbers = what === "none" ? null : this[what];
    this.pane.viewer.setMask(numbers);
    this.#volumes(numbers);
  }

  #volumes(numbers) {
    const scores = this.shown === "prediction" && !this.session?.active && this.entry.scores;
    this.legend.set(
      numbers
        ? [
            ["Volume", counts(numbers, this.classes).map((n) => ml(n * this.voxelMl))],
            ...(scores ? [["DSC", this.classes.map(({ name }) => score(scores[name]))]] : []),
          ]
        : [],
    );
  }

  #begin() {
    const from = this.shown === "none" ? (this.label ?? this.prediction) : this[this.shown];
    this.session.begin(from ?? new Uint8Array(this.voxels), this.label);
    const copy = (what, text) =>
      this[what] && el("button", { type: "button", on: { click: () => this.session.put(this[what]) } }, text);
    this.save = el(
      "button",
      { type: "button", class: "primary", id: "save", title: "Save (Ctrl+S)", on: { click: () => this.#save() } },
      "Save as the label",
    );
    this.unsaved = el("p", { class: "quiet", "aria-live": "polite" });
    replace(this.side, el("h2", {}, "Correcting"), toolbar(this.session));
    replace(
      this.actions,
      this.unsaved,
      this.save,
      el("button", { type: "button", on: { click: () => this.#stop() } }, "Stop correcting"),
      el(
        "details",
        {},
        el("summary", {}, "Start again from"),
        el(
          "div",
          { class: "stack" },
          copy("prediction", "The prediction"),
          copy("label", "The saved label"),
          el(
            "button",
            { type: "button", on: { click: () => this.session.put(new Uint8Array(this.voxels)) } },
            "Nothing",
          ),
        ),
      ),
    );
    this.#changed();
    this.pane.viewer.canvas.focus();
  }

  #changed() {
    const { session } = this;
    const changed = session.history.changedVoxels();
    replace(
      this.unsaved,
      changed
        ? this.label
          ? `${count(changed, "voxel differs", "voxels differ")} from the saved label.`
          : `${count(changed, "voxel")} in the new label, not saved yet.`
        : "Nothing has changed yet.",
    );
    this.save.disabled = !changed && this.label !== null; // an empty label is one too
    this.#volumes(session.history.current);
    guardWith(changed ? () => this.#mayLeave() : null);
  }

  async #mayLeave() {
    const answer = await ask("Save the correction?", `The drawing of ${this.entry.name} is not saved yet.`, [
      ["save", "Save", "primary"],
      ["drop", "Discard it"],
      ["stay", "Keep drawing"],
    ]);
    if (answer === "save") return this.#save();
    return answer === "drop";
  }

  /** True once it is on disk. */
  async #save() {
    const { session, entry } = this;
    this.save.disabled = true;
    const drawn = session.history.current.slice();
    try {
      const saved = await api.saveLabel(entry.name, await zipped(labelFile(this.image, toIds(drawn, this.classes))));
      if (saved.scores) entry.scores = saved.scores; // of the prediction, against the label as it is now
    } catch (error) {
      this.save.disabled = false;
      say(`Not saved. ${explained(error)}`, "bad");
      return false;
    }
    this.label = drawn;
    entry.labelled = "corrected";
    session.markSaved();
    this.#badges();
    say(`Saved as the label of ${entry.name}. The label it replaces is kept.`);
    this.main.dataset.saved = String(Number(this.main.dataset.saved ?? 0) + 1);
    return true;
  }

  async #stop() {
    if (this.session.unsaved && !(await this.#mayLeave())) return;
    guardWith(null);
    this.session.end();
    this.#sideChoices();
    this.#actionButtons();
    this.#choose(this.label ? "label" : this.prediction ? "prediction" : "none");
  }

  async #predict() {
    const bar = progressBar("Predicting");
    bar.set("Waiting", null);
    this.predict.replaceWith(bar.node);
    try {
      const job = await api.start({ kind: "segment-case", case: this.entry.name });
      const ended = await follow(
        job.id,
        (now) => bar.set(now.message || "Segmenting", now.progress || null),
        this.signal,
      );
      if (this.signal.aborted) return;
      if (ended.state !== "done") throw new Error(ended.message || "The case could not be predicted.");
      const mask = await unzipped(await api.caseFile(this.entry.name, "prediction"));
      this.prediction = toNumbers(labels(mask, readHeader(mask)), this.classes);
      this.entry.predicted = true;
      const fresh = (await api.cases()).find((entry) => entry.name === this.entry.name);
      Object.assign(this.entry, fresh);
      this.#badges();
      this.#sideChoices();
      this.#actionButtons();
      this.#choose("prediction");
    } catch (error) {
      if (this.signal.aborted) return;
      bar.node.replaceWith(this.predict);
      say(explained(error), "bad");
    }
  }

  #keys = (event) => {
    if (!this.session?.active || document.querySelector("dialog[open]")) return;
    if (event.target.matches?.("input[type=search], input[type=number], select, textarea")) return;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") {
      event.preventDefault();
      if (!this.save.disabled) this.#save();
    } else if (drawingKey(this.session, event)) {
      event.preventDefault();
      event.stopPropagation();
    }
  };

  #leave() {
    document.removeEventListener("keydown", this.#keys);
    guardWith(null);
    this.pane.close();
  }
}
