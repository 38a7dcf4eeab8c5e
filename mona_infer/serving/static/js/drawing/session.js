// Correcting a mask: what the tools do to it, undo and redo, and what is not saved yet.
import { History } from "../core/history.js";
import { Emitter } from "../viewer/emitter.js";

export class DrawingSession extends Emitter {
  constructor(viewer, classes) {
    super();
    this.viewer = viewer;
    this.classes = classes;
    this.tool = "look";
    this.number = Math.min(1, classes.length - 1);
    this.size = 3;
    this.active = false;
    this.protect = false;
    viewer.on("stroke", () => this.active && this.#stroke());
  }

  /** Begin with `start`, where `saved` is what is on disk (null: nothing is). */
  begin(start, saved) {
    const empty = new Uint8Array(start.length);
    this.history = new History(saved ?? empty);
    this.unsavedStart = saved === null;
    this.history.record(start);
    this.history.done = []; // where one started is not undone
    this.active = true;
    this.viewer.setMask(this.history.current);
    this.choose("pen");
  }

  end() {
    this.active = false;
    this.choose("look");
  }

  choose(tool, number = this.number, size = this.size) {
    Object.assign(this, { tool, number, size });
    this.viewer.setTool(tool, number, size);
    this.emit("tool");
  }

  /** Replace the whole drawing, as one step that can be undone. */
  put(numbers) {
    if (this.history.record(numbers)) this.#shown(this.history.current);
  }

  undo() {
    this.#shown(this.history.undo());
  }

  redo() {
    this.#shown(this.history.redo());
  }

  get unsaved() {
    return this.active && this.history.changed;
  }

  markSaved() {
    this.history.markSaved();
    this.emit("change");
  }

  #stroke() {
    const drawn = this.viewer.mask();
    if (this.protect && this.tool !== "erase" && this.tool !== "piece") {
      const { current } = this.history;
      let kept = false;
      for (let n = 0; n < drawn.length; n += 1) {
        if (current[n] && drawn[n] !== current[n]) {
          drawn[n] = current[n];
          kept = true;
        }
      }
      if (kept) this.viewer.setMask(drawn);
    }
    if (this.history.record(drawn)) this.emit("change");
  }

  #shown(numbers) {
    if (!numbers) return;
    this.viewer.setMask(numbers);
    this.emit("change");
  }
}
