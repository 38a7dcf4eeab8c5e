// Slices and surfaces with NiiVue, on WebGL2.

async function loadNiivue() {
  const code = await unpacked("niivue");
  if (!code) return null;
  if (!document.createElement("canvas").getContext("webgl2")) return null;
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  try {
    await new Promise((done, failed) => document.head.append(make("script", { src: address, onload: done, onerror: failed })));
  } finally {
    URL.revokeObjectURL(address);
  }
  return window.niivue;
}

// A copy whose voxel axes are the world's: NiiVue names the axes of an oblique scan by rules of its own, and would then
// show other slices than the page says.  Its 3-D view is along the voxels, too.
function upright(layer) {
  const copy = layer.buffer.slice(0), view = new DataView(copy);
  view.setInt16(68, 0, true); // not a label map: NiiVue draws the edges of those fainter, and single voxels hardly at all
  view.setInt16(252, 0, true); // no qform
  view.setInt16(254, 1, true);
  straight(layer).forEach((row, n) => row.forEach((value, m) => view.setFloat32(280 + 16 * n + 4 * m, value, true)));
  return copy;
}

function straight({ spacing, shape }) {
  return [0, 1, 2].map((n) => [0, 1, 2, 3].map((m) => (m === n ? spacing[n] : m === 3 ? -spacing[n] * (shape[n] - 1) / 2 : 0)));
}

// Whether an axis is far enough from the world's that letters on a cube would mislead.
function oblique({ affine, spacing }) {
  return [0, 1, 2].some((n) => affine[n][n] / spacing[n] < 0.95);
}

class GpuViewer {
  constructor(library, host, layers, colours, tell) {
    Object.assign(this, { library, host, layers, colours, tell });
    this.canvas = make("canvas", { class: "gpu", "aria-hidden": "true" });
    host.append(this.canvas);
    this.meshes = null;
    this.last = {};
    this.quiet = false;
    // NiiVue's own keys would compete with those of the page.
    for (const kind of ["keydown", "keyup"]) host.addEventListener(kind, (event) => event.stopPropagation(), true);
  }

  async start() {
    const { Niivue, NVImage } = this.library;
    this.nv = new Niivue({
      backColor: [0, 0, 0, 1], crosshairColor: [0.47, 0.75, 1, 0.8], isRadiologicalConvention: true, sagittalNoseLeft: true,
      isNearestInterpolation: true, multiplanarShowRender: 0, dragAndDropEnabled: false, logLevel: "silent", loadingText: "",
      viewModeHotKey: "", clipPlaneHotKey: "", cycleClipPlaneHotKey: "", isSliceMM: false, meshThicknessOn2D: 0,
      fontColor: [1, 1, 1, 0.75], fontMinPx: 12, fontSizeScaling: 0, sliceType: 0, crosshairWidth: 0, dragMode: 9, isOrientCube: !oblique(this.layers.mask),
      isAntiAlias: false,
    });
    this.nv.onLocationChange = (place) => {
      if (!this.quiet) this.tell.at(Array.from(place.vox.slice(0, 3), Math.round));
    };
    this.nv.onIntensityChange = (volume) => this.tell.window([volume.cal_min, volume.cal_max]);
    // 3-D is the surfaces alone: casting rays through the scan as well takes a minute without a graphics card.
    this.nv.drawImage3D = () => {};
    await this.nv.attachToCanvas(this.canvas);
    this.volumes = {};
    for (const name of ["scan", "mask", "reference"]) {
      // Without a scan, the mask stands in for it in black, since NiiVue lays everything over a first volume.
      const layer = this.layers[name] ?? (name === "scan" ? this.layers.mask : null);
      if (!layer) continue;
      const image = await NVImage.new(upright(layer), `${name}.nii`, "gray", 1, null, 0, this.layers.scan ? 1 : 1000);
      if (name !== "scan") image.setColormapLabel(this.table(name, new Set()));
      this.volumes[name] = image;
    }
    // Not addVolume, which would draw everything again for each of them.
    this.nv.volumes = Object.values(this.volumes);
    [this.nv.back, ...this.nv.overlays] = this.nv.volumes;
  }

  table(name, hidden) {
    const colours = this.colours[name], channel = (n) => colours.map((c) => c[n]);
    const alpha = colours.map((_, n) => (n && !hidden.has(n) ? 255 : 0));
    return { R: channel(0), G: channel(1), B: channel(2), A: alpha, I: colours.map((_, n) => n), labels: colours.map(String) };
  }

  update(state) {
    if (this.waiting) return;
    this.state = state;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.apply(this.state); });
  }

  // Whether a part of the state differs from what was last applied.
  changed(part, value) {
    const text = JSON.stringify(value);
    const differs = this.last[part] !== text;
    this.last[part] = text;
    return differs;
  }

  apply(state) {
    this.quiet = true;
    const { nv, volumes } = this, solid = state.view === "3d", n = state.frame;
    let scan = false, overlay = false; // what has to be given to the graphics card again
    if (this.changed("window", state.window) && this.layers.scan) {
      [volumes.scan.cal_min, volumes.scan.cal_max] = state.window;
      scan = true;
    }
    for (const name of ["mask", "reference"]) {
      if (!volumes[name]) continue;
      const { on, opacity, outline } = state[name], hidden = [...state.hidden].sort(), shown = on ? opacity : 0;
      if (this.changed(`${name} table`, hidden)) { volumes[name].setColormapLabel(this.table(name, state.hidden)); overlay = true; }
      if (this.changed(`${name} outline`, outline)) { volumes[name].img = outline ? this.layers[name].outline : this.layers[name].voxels; overlay = true; }
      if (this.changed(`${name} opacity`, shown)) { volumes[name].opacity = shown; overlay = true; }
    }
    if (this.changed("frame", n)) {
      for (const volume of Object.values(volumes)) volume.frame4D = Math.min(n, volume.nFrame4D - 1);
      scan = overlay = true;
    }
    if (this.changed("started", true)) nv.updateGLVolume();
    else nv.volumes.forEach((volume, layer) => { if (layer ? overlay : scan) nv.refreshLayers(volume, layer); });
    if (scan || this.changed("smooth", [state.smooth, solid])) nv.updateInterpolation(0, state.smooth);
    if (solid) this.surfaces(state);
    if (this.changed("view", [state.view, state.axis])) {
      nv.opts.crosshairWidth = state.view === "planes" ? 1 : 0;
      for (const mesh of this.meshes?.values() ?? []) mesh.visible = solid;
      const slice = [nv.sliceTypeSagittal, nv.sliceTypeCoronal, nv.sliceTypeAxial][state.axis];
      nv.setSliceType({ slice, planes: nv.sliceTypeMultiplanar, "3d": nv.sliceTypeRender }[state.view]);
    }
    if (this.changed("zoom", [state.zoom, state.view])) this.zoom(state);
    nv.scene.crosshairPos = nv.vox2frac(state.at);
    nv.drawScene();
    this.quiet = false;
  }

  // NiiVue shows (extent - pan) / zoom, in millimetres along the voxel axes.
  zoom({ zoom, box, view, axis }) {
    if (!zoom || view === "3d") { this.nv.scene.pan2Dxyzmm = [0, 0, 0, 1]; return; }
    const { shape } = this.layers.mask, { extentsMinOrtho: low, extentsMaxOrtho: high } = this.volumes.scan;
    const factor = Math.max(1, Math.min(...[0, 1, 2].filter((n) => n !== axis).map((n) => shape[n] / (box[n][1] - box[n][0]))));
    const pan = [0, 1, 2].map((n) => (low[n] + high[n]) / 2 - factor * (low[n] + ((box[n][0] + box[n][1]) / 2 / shape[n]) * (high[n] - low[n])));
    this.nv.scene.pan2Dxyzmm = [...pan, factor];
  }

  // Made when first looked at, one for each class, of the mask or, where that is off, the reference.
  surfaces(state) {
    const name = state.mask.on || !this.layers.reference ? "mask" : "reference";
    if (this.changed("surfaces", [name, state.frame])) {
      for (const mesh of this.meshes?.values() ?? []) mesh.unloadMesh(this.nv.gl);
      this.meshes = new Map();
      this.colours.mask.forEach(([r, g, b], n) => {
        const found = n ? surfaceOf(this.layers[name], n, Math.min(state.frame, this.layers[name].frames - 1)) : null;
        if (!found) return;
        const mesh = new this.library.NVMesh(found.points, found.triangles, `class ${n}`, new Uint8Array([r, g, b, 255]), 1, true, this.nv.gl);
        this.meshes.set(n, mesh);
      });
      this.nv.meshes = [...this.meshes.values()]; // not addMesh, which would give all volumes to the card again
    }
    for (const [n, mesh] of this.meshes) mesh.visible = !state.hidden.has(n);
  }
}
