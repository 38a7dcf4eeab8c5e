// Plain 2-D slices on a canvas: for browsers without WebGL 2, servers without NiiVue, and pictures side by side.
import { el } from "../core/dom.js";
import { readHeader, voxels } from "../core/nifti.js";
import { stackAxis, toFile, toWorld, worldOrder } from "../core/world.js";
import { Emitter } from "./emitter.js";

// Of a slice along each world axis: which world axes lie across and down the screen.  Both run against it, as in
// radiology: the patient's right is on the left, head or front is up, and in a sagittal slice the front is left.
const LETTERS = ["R", "A", "S"]; // what the far end of each world axis is: left of the screen, or its top
const SCREEN = { 0: { across: 1, down: 2 }, 1: { across: 0, down: 2 }, 2: { across: 0, down: 1 } };

export class PlainViewer extends Emitter {
  canDraw = false;

  constructor(stage, colours) {
    super();
    this.colours = colours;
    this.opacity = 0.5;
    this.hidden = new Set();
    this.ids = null;
    this.canvas = el("canvas", { class: "plain", role: "img", tabindex: "0", "aria-label": "Slice of the scan" });
    this.canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    stage.append(this.canvas);
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(stage);
    this.stage = stage;
  }

  async show(buffer) {
    this.buffer = buffer;
    this.header = readHeader(buffer);
    this.order = worldOrder(this.header.dims, this.header.affine);
    this.spacing = this.order.stored.map((axis) => this.header.spacing[axis]);
    this.axis = stackAxis(this.spacing);
    this.slices = this.order.dims[this.axis];
    this.slice = Math.floor(this.slices / 2);
    this.frames = this.header.dims[3];
    this.ids = null;
    this.setFrame(0);
    this.window = this.range = spread(this.image);
    this.emit("window", ...this.window);
    this.goTo(this.slice);
  }

  setFrame(frame) {
    this.image = toWorld(voxels(this.buffer, this.header, frame), this.order);
    this.draw();
  }

  setMask(ids) {
    this.ids = ids && toWorld(ids, this.order);
    this.draw();
  }

  mask() {
    return this.ids && toFile(this.ids, this.order);
  }

  setOpacity(opacity) {
    this.opacity = opacity;
    this.draw();
  }

  setHidden(hidden) {
    this.hidden = hidden;
    this.draw();
  }

  setView() {}

  setTool() {}

  setWindow(low, high) {
    this.window = [low, high];
    this.draw();
  }

  goTo(slice) {
    this.slice = Math.min(Math.max(slice, 0), this.slices - 1);
    this.draw();
    this.emit("slice", this.slice);
  }

  close() {
    this.resized.disconnect();
    this.canvas.remove();
  }

  draw() {
    if (!this.image) return;
    const { across, down } = SCREEN[this.axis];
    const [columns, rows] = [this.order.dims[across], this.order.dims[down]];
    const strides = [1, this.order.dims[0], this.order.dims[0] * this.order.dims[1]];
    const picture = new ImageData(columns, rows);
    const [low, high] = this.window ?? [0, 1];
    const scale = 255 / (high - low || 1);
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const place =
          this.slice * strides[this.axis] + (rows - 1 - row) * strides[down] + (columns - 1 - column) * strides[across];
        const grey = (this.image[place] - low) * scale;
        const id = this.ids ? this.ids[place] : 0;
        const share = id && !this.hidden.has(id) ? this.opacity : 0;
        const colour = this.colours[id] ?? this.colours[0];
        for (let channel = 0; channel < 3; channel += 1) {
          picture.data[4 * (row * columns + column) + channel] =
            grey + share * (colour[channel] - Math.min(Math.max(grey, 0), 255));
        }
        picture.data[4 * (row * columns + column) + 3] = 255;
      }
    }
    this.#paint(picture, columns * this.spacing[across], rows * this.spacing[down]);
  }

  /** Enlarged so that a millimetre is as long across as down. */
  #paint(picture, width, height) {
    const small = new OffscreenCanvas(picture.width, picture.height);
    small.getContext("2d").putImageData(picture, 0, 0);
    const density = window.devicePixelRatio || 1;
    const scale = Math.min(this.stage.clientWidth / width, this.stage.clientHeight / height);
    this.canvas.width = Math.max(1, Math.round(width * scale * density));
    this.canvas.height = Math.max(1, Math.round(height * scale * density));
    this.canvas.style.width = `${width * scale}px`;
    this.canvas.style.height = `${height * scale}px`;
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, this.canvas.width, this.canvas.height);
    this.#letters(context, density);
  }

  #letters(context, density) {
    const { across, down } = SCREEN[this.axis];
    context.font = `${12 * density}px system-ui, sans-serif`;
    context.fillStyle = "#c9d2de";
    context.fillText(LETTERS[across], 5 * density, this.canvas.height / 2);
    context.fillText(LETTERS[down], this.canvas.width / 2, 15 * density);
  }

  #key(event) {
    const by = { ArrowUp: 1, ArrowDown: -1, PageUp: 1, PageDown: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    this.goTo(this.slice + by);
  }

  #wheel(event) {
    event.preventDefault();
    this.goTo(this.slice + (event.deltaY > 0 ? -1 : 1));
  }
}

/** The window a scan is first shown with: from its 1st to its 99th percentile, by a sample. */
export function spread(image) {
  const sample = [];
  const stride = Math.max(1, Math.floor(image.length / 50000));
  for (let n = 0; n < image.length; n += stride) if (Number.isFinite(image[n])) sample.push(image[n]);
  sample.sort((a, b) => a - b);
  const at = (share) => sample[Math.floor(share * (sample.length - 1))] ?? 0;
  return at(0.01) < at(0.99) ? [at(0.01), at(0.99)] : [at(0), at(1) > at(0) ? at(1) : at(0) + 1];
}
