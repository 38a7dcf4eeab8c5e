// NiiVue behind the page's viewer interface.  The mask is NiiVue's drawing: shown without interpolation, at once
// editable, and as many bytes as the scan has voxels.
import { el } from "../core/dom.js";
import { readHeader } from "../core/nifti.js";
import { stackAxis, toFile, toWorld } from "../core/world.js";
import { Emitter } from "./emitter.js";

const PLANES = { 0: "SAGITTAL", 1: "CORONAL", 2: "AXIAL" }; // by the world axis they are sliced along

export class NiivueViewer extends Emitter {
  canDraw = true;

  constructor(library, stage, colours) {
    super();
    this.library = library;
    this.colours = colours;
    this.hidden = new Set();
    this.opacity = 0.5;
    this.view = "slices";
    this.canvas = el("canvas", { tabindex: "0", "aria-label": "Slices of the scan: scroll or use the arrow keys" });
    stage.append(this.canvas);
    const niivue = new library.Niivue({
      backColor: [0, 0, 0, 1],
      crosshairColor: [0.45, 0.75, 1, 0.5],
      fontColor: [0.75, 0.8, 0.85, 1],
      crosshairWidth: 1,
      isRadiologicalConvention: true,
      sagittalNoseLeft: true,
      dragAndDropEnabled: false,
      loadingText: "",
      logLevel: "error",
      multiplanarShowRender: library.SHOW_RENDER.NEVER,
      multiplanarPadPixels: 4,
      isColorbar: false,
      clipPlaneHotKey: "",
      cycleClipPlaneHotKey: "",
      viewModeHotKey: "", // the page has its own keys
    });
    niivue.onLocationChange = () => this.#moved();
    niivue.onDrawingChanged = () => {
      this.#lastVoxel();
      this.emit("stroke");
    };
    niivue.onMouseUp = () => this.emit("stroke"); // erasing a piece reports nothing else
    niivue.onIntensityChange = (image) => this.emit("window", image.cal_min, image.cal_max);
    // Its letters would move the crosshair, and with it the slice, under the page's own keys.
    niivue.keyDownListener = niivue.keyUpListener = () => {};
    this.niivue = niivue;
  }

  async show(buffer) {
    const { niivue } = this;
    if (!this.attached) await niivue.attachToCanvas(this.canvas); // now, when the canvas has its size in the page
    this.attached = true;
    for (const volume of [...niivue.volumes]) niivue.removeVolume(volume);
    this.header = readHeader(buffer);
    this.frames = this.header.dims[3];
    await niivue.loadFromArrayBuffer(buffer, "scan.nii"); // never the scan's own name, which could be a patient's
    const [volume] = niivue.volumes;
    this.order = {
      dims: volume.dimsRAS.slice(1),
      step: volume.img2RASstep,
      start: volume.img2RASstart.reduce((sum, start) => sum + start),
    };
    this.axis = stackAxis(volume.pixDimsRAS.slice(1, 4));
    this.slices = this.order.dims[this.axis];
    niivue.createEmptyDrawing();
    niivue.drawOpacity = this.opacity;
    this.#colour();
    this.setView(this.view);
    this.window = [volume.cal_min, volume.cal_max];
    this.range = [volume.robust_min ?? volume.cal_min, volume.robust_max ?? volume.cal_max];
    this.emit("window", ...this.window);
    this.#moved();
  }

  setFrame(frame) {
    this.niivue.setFrame4D(this.niivue.volumes[0].id, frame);
  }

  setMask(ids) {
    const { niivue } = this;
    const [x, y, z] = this.order.dims;
    niivue.drawBitmap = ids ? toWorld(Uint8Array.from(ids), this.order) : new Uint8Array(x * y * z);
    niivue.drawClearAllUndoBitmaps(); // the page keeps its own history
    niivue.drawAddUndoBitmap();
    niivue.refreshDrawing(true);
  }

  mask() {
    return toFile(this.niivue.drawBitmap, this.order);
  }

  setOpacity(opacity) {
    this.opacity = opacity;
    this.niivue.setDrawOpacity(opacity);
  }

  setHidden(hidden) {
    this.hidden = hidden;
    this.#colour();
  }

  setView(view) {
    const { niivue, library } = this;
    this.view = view;
    const plane = library.SLICE_TYPE[PLANES[this.axis ?? 2]];
    const types = { slices: plane, planes: library.SLICE_TYPE.MULTIPLANAR, "3d": library.SLICE_TYPE.RENDER };
    this.#crosshair();
    const seen = view === "3d" ? 0 : 1; // the scan would hide the structures
    if (niivue.volumes.length && niivue.volumes[0].opacity !== seen) niivue.setOpacity(0, seen);
    niivue.setSliceType(types[view]);
  }

  setWindow(low, high) {
    const [volume] = this.niivue.volumes;
    [volume.cal_min, volume.cal_max] = [low, high];
    this.niivue.updateGLVolume();
  }

  setTool(tool, number, size) {
    const { niivue } = this;
    niivue.opts.penSize = tool === "pen" || tool === "erase" ? size : 1;
    this.tool = tool;
    this.#crosshair();
    const values = { pen: number, fill: number, erase: 0, piece: -0 };
    niivue.setDrawingEnabled(tool !== "look");
    if (tool !== "look") niivue.setPenValue(values[tool], tool === "fill");
    this.canvas.classList.toggle("drawing", tool !== "look");
  }

  get slice() {
    return this.niivue.frac2vox(this.niivue.scene.crosshairPos)[this.axis];
  }

  goTo(slice) {
    const voxel = [...this.niivue.frac2vox(this.niivue.scene.crosshairPos)];
    voxel[this.axis] = Math.min(Math.max(slice, 0), this.slices - 1);
    this.niivue.scene.crosshairPos = this.niivue.vox2frac(voxel);
    this.niivue.drawScene();
    this.#moved();
  }

  close() {
    this.niivue.cleanup();
    this.niivue.gl?.getExtension("WEBGL_lose_context")?.loseContext(); // browsers allow only a few at a time
    this.canvas.remove();
  }

  /** NiiVue draws a line up to the voxel where the pen was lifted, and leaves that one out. */
  #lastVoxel() {
    const { niivue } = this;
    const at = niivue.drawPenLocation;
    if (Number.isNaN(at[0]) || niivue.opts.isFilledPen) return;
    niivue.drawPt(...at, niivue.opts.penValue);
    niivue.refreshDrawing(true);
  }

  /** Only where it tells something: which point the other planes go through. */
  #crosshair() {
    this.niivue.opts.crosshairWidth = this.view === "planes" && (this.tool ?? "look") === "look" ? 1 : 0;
  }

  #moved() {
    if (this.order) this.emit("slice", this.slice);
  }

  #colour() {
    const channel = (n) => this.colours.map((colour) => colour[n]);
    this.niivue.setDrawColormap({
      R: channel(0),
      G: channel(1),
      B: channel(2),
      I: this.colours.map((_, number) => number),
      A: this.colours.map((_, number) => (number === 0 || this.hidden.has(number) ? 0 : 255)),
      labels: this.colours.map(() => ""),
    });
  }
}
