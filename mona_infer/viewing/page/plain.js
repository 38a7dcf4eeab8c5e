// Slices on a 2-D canvas: for browsers without WebGL2, and where NiiVue was not fetched.

const LETTERS = [["L", "R"], ["P", "A"], ["I", "S"]]; // towards the beginning and the end of x, y, z
// Across and down the screen: which axis, both running backwards (the patient's right is left; front and head are up).
const SCREEN = [[1, 2], [0, 2], [0, 1]];

class PlainViewer {
  static name3d = null;

  constructor(host, layers, colours, tell) {
    Object.assign(this, { host, layers, colours, tell });
    this.canvas = make("canvas", { class: "plain", "aria-hidden": "true" });
    host.append(this.canvas);
    this.slice = document.createElement("canvas");
    this.tiles = [];
    this.state = null;
    new ResizeObserver(() => this.draw()).observe(host);
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointermove", (event) => event.buttons & 1 && this.point(event));
  }

  async start() {}

  update(state) {
    this.state = state;
    if (!this.waiting) this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  draw() {
    const { state, canvas } = this, ratio = window.devicePixelRatio || 1;
    if (!state) return;
    canvas.width = Math.max(1, Math.round(this.host.clientWidth * ratio));
    canvas.height = Math.max(1, Math.round(this.host.clientHeight * ratio));
    const context = canvas.getContext("2d"), { width, height } = canvas;
    context.fillStyle = "#000";
    context.fillRect(0, 0, width, height);
    const wide = width > 1.4 * height;
    const axes = state.view === "planes" ? [state.axis, ...[2, 1, 0].filter((a) => a !== state.axis)] : [state.axis];
    this.tiles = axes.map((axis, n) => ({ axis, ...this.place(axes.length, n, wide, width, height) }));
    for (const tile of this.tiles) this.drawTile(context, tile, ratio);
  }

  place(count, n, wide, width, height) {
    if (count === 1) return { x: 0, y: 0, w: width, h: height };
    if (wide) return { x: (n * width) / 3, y: 0, w: width / 3, h: height };
    return n ? { x: ((n - 1) * width) / 2, y: height * 0.6, w: width / 2, h: height * 0.4 } : { x: 0, y: 0, w: width, h: height * 0.6 };
  }

  // Where the slice lies in its tile, in canvas pixels, with the millimetre equally long both ways.
  fit(tile) {
    const { shape, spacing } = this.layers.mask, [u, v] = SCREEN[tile.axis];
    const box = this.state.zoom ? this.state.box : shape.map((n) => [0, n]);
    const [cols, rows] = [u, v].map((a) => box[a][1] - box[a][0]);
    const scale = Math.min(tile.w / (cols * spacing[u]), tile.h / (rows * spacing[v]));
    const w = cols * spacing[u] * scale, h = rows * spacing[v] * scale;
    return { u, v, cols, rows, w, h, left: shape[u] - box[u][1], top: shape[v] - box[v][1], x: tile.x + (tile.w - w) / 2, y: tile.y + (tile.h - h) / 2 };
  }

  drawTile(context, tile, ratio) {
    const { state } = this, fit = this.fit(tile);
    const put = (pixels, smooth, alpha) => {
      if (!pixels) return;
      this.slice.width = pixels.width;
      this.slice.height = pixels.height;
      this.slice.getContext("2d").putImageData(pixels, 0, 0);
      context.imageSmoothingEnabled = smooth;
      context.globalAlpha = alpha;
      context.drawImage(this.slice, fit.left, fit.top, fit.cols, fit.rows, fit.x, fit.y, fit.w, fit.h);
      context.globalAlpha = 1;
    };
    if (this.layers.scan) put(this.grey(tile.axis, fit), state.smooth, 1);
    for (const name of ["mask", "reference"])
      if (this.layers[name] && state[name].on) put(this.coloured(name, tile.axis, fit), false, state[name].opacity);
    context.fillStyle = "rgb(255 255 255 / .75)";
    context.font = `${12 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.fillText(LETTERS[fit.u][1], tile.x + 8 * ratio, tile.y + tile.h / 2);
    context.fillText(LETTERS[fit.v][1], tile.x + tile.w / 2, tile.y + 12 * ratio);
    if (state.view !== "planes") return;
    context.strokeStyle = "rgb(120 190 255 / .7)";
    context.lineWidth = ratio;
    const { shape } = this.layers.mask, at = state.at;
    const cx = fit.x + ((shape[fit.u] - at[fit.u] - 0.5 - fit.left) / fit.cols) * fit.w;
    const cy = fit.y + ((shape[fit.v] - at[fit.v] - 0.5 - fit.top) / fit.rows) * fit.h;
    context.strokeRect(cx, tile.y, 0, tile.h);
    context.strokeRect(tile.x, cy, tile.w, 0);
  }

  // A slice of a volume, pixel by pixel as it is on the screen.
  pixels(volume, axis, paint) {
    const [u, v] = SCREEN[axis], nu = volume.shape[u], nv = volume.shape[v];
    const strides = volume.strides(), frame = Math.min(this.state.frame, volume.frames - 1);
    const start = volume.size * frame + this.state.at[axis] * strides[axis];
    const image = new ImageData(nu, nv), out = new Uint32Array(image.data.buffer);
    for (let r = 0, n = 0; r < nv; r++)
      for (let c = 0; c < nu; c++, n++) out[n] = paint(start + (nu - 1 - c) * strides[u] + (nv - 1 - r) * strides[v]);
    return image;
  }

  grey(axis) {
    const scan = this.layers.scan, [low, high] = this.state.window, scale = 255 / Math.max(1e-9, high - low);
    return this.pixels(scan, axis, (n) => {
      const g = Math.max(0, Math.min(255, Math.round((scan.voxels[n] * scan.slope + scan.intercept - low) * scale)));
      return (255 << 24) | (g << 16) | (g << 8) | g;
    });
  }

  coloured(name, axis) {
    const volume = this.layers[name], voxels = this.state[name].outline ? volume.outline : volume.voxels;
    const table = this.colours[name].map(([r, g, b], n) => (n && !this.state.hidden.has(n) ? (255 << 24) | (b << 16) | (g << 8) | r : 0));
    return this.pixels(volume, axis, (n) => table[voxels[n]]);
  }

  wheel(event) {
    event.preventDefault();
    const tile = this.tileAt(event);
    if (tile) this.tell.move(tile.axis, event.deltaY < 0 ? 1 : -1);
  }

  point(event) {
    const tile = this.tileAt(event);
    if (!tile) return;
    const fit = this.fit(tile), { shape } = this.layers.mask, at = [...this.state.at];
    const [x, y] = this.position(event);
    at[fit.u] = shape[fit.u] - 1 - Math.floor(fit.left + ((x - fit.x) / fit.w) * fit.cols);
    at[fit.v] = shape[fit.v] - 1 - Math.floor(fit.top + ((y - fit.y) / fit.h) * fit.rows);
    if (at.every((n, a) => n >= 0 && n < shape[a])) this.tell.at(at);
  }

  position(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) * this.canvas.width) / box.width, ((event.clientY - box.top) * this.canvas.height) / box.height];
  }

  tileAt(event) {
    const [x, y] = this.position(event);
    return this.tiles.find((t) => x >= t.x && x < t.x + t.w && y >= t.y && y < t.y + t.h);
  }
}
