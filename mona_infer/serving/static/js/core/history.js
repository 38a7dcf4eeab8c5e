// Undo and redo of a drawing: each step holds only the voxels that changed.

const LONGEST = 200; // steps

export class History {
  constructor(voxels) {
    this.reset(voxels);
  }

  /** Start over from these voxels, which count as saved. */
  reset(voxels) {
    this.current = voxels.slice();
    this.done = [];
    this.undone = [];
    this.saved = this.current.slice();
  }

  /** Take in what a stroke changed; false where it changed nothing. */
  record(voxels) {
    const places = [];
    for (let n = 0; n < voxels.length; n += 1) if (voxels[n] !== this.current[n]) places.push(n);
    if (places.length === 0) return false;
    const where = Uint32Array.from(places);
    this.done.push({ where, before: pick(this.current, where), after: pick(voxels, where) });
    if (this.done.length > LONGEST) this.done.shift();
    this.undone = [];
    this.current.set(voxels);
    return true;
  }

  undo() {
    return this.#move(this.done, this.undone, "before");
  }

  redo() {
    return this.#move(this.undone, this.done, "after");
  }

  /** Whether what is drawn differs from what was saved: drawing and undoing it is no change. */
  get changed() {
    return this.changedVoxels() > 0;
  }

  changedVoxels() {
    let count = 0;
    for (let n = 0; n < this.saved.length; n += 1) if (this.saved[n] !== this.current[n]) count += 1;
    return count;
  }

  markSaved() {
    this.saved.set(this.current);
  }

  #move(from, to, values) {
    const step = from.pop();
    if (!step) return null;
    step.where.forEach((place, n) => {
      this.current[place] = step[values][n];
    });
    to.push(step);
    return this.current.slice();
  }
}

function pick(voxels, where) {
  return Uint8Array.from(where, (place) => voxels[place]);
}
