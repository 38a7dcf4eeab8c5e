// The page of a case: one state, from which viewer and controls are drawn.

const KEYS = [
  ["↑ ↓", "next and previous slice"], ["← →", "previous and next frame"], ["Space", "play or stop"], ["v", "slice, three planes, 3-D"],
  ["m", "mask on or off"], ["r", "reference on or off"], ["o", "mask as outline or filled"], ["[ ]", "mask fainter, stronger"],
  ["1 … 9", "class on or off"], ["w", "next slice to check"], ["z", "zoom to the mask"], ["s", "smooth or square pixels"], ["0", "everything as at first"],
];

async function showCase() {
  const about = json("about"), classes = about.classes;
  const page = { heading: find("name"), stage: find("stage") };
  page.heading.append(...breakable(about.name));
  find("subtitle").textContent = subtitle(about);
  if (about.back) { find("back").hidden = false; find("back").href = about.back; }
  if (about.warnings.length) {
    find("warnings").hidden = false;
    find("warnings").querySelector("ul").append(...about.warnings.map((w) => make("li", {}, w)));
  }
  find("meanings").append(meanings(about));
  find("keylist").append(...KEYS.flatMap(([k, what]) => [make("dt", {}, ...k.split(" ").map((one) => make("kbd", {}, one))), make("dd", {}, what)]));

  const layers = {};
  const library = location.hash === "#plain" ? null : await loadNiivue().catch(() => null);
  for (const name of ["scan", "mask", "reference"]) {
    const buffer = await unpacked(name);
    if (buffer) layers[name] = new Nifti(buffer);
  }
  const { shape } = layers.mask, axis = about.axis, slices = shape[axis];
  for (const name of ["mask", "reference"])
    if (layers[name]) Object.defineProperty(layers[name], "outline", { get() { return (this.kept ??= outlined(this, axis)); } });
  const colours = { mask: [[0, 0, 0], ...classes.map((c) => c.colour)], reference: [[0, 0, 0], ...classes.map((c) => lighter(c.colour))] };
  const box = boxAround(layers, axis);
  const first = () => ({
    view: "slice", axis, frame: 0, zoom: false, box, smooth: true, hidden: new Set(), window: [...about.window],
    at: box.map(([a, b]) => Math.min(Math.floor((a + b) / 2), 1e9)),
    mask: { on: true, opacity: layers.scan ? 0.5 : 0.9, outline: false }, reference: { on: Boolean(layers.reference), opacity: 0.95, outline: true },
  });
  const state = first();
  state.at[axis] = fullest(about, state.at[axis]);

  const tell = {
    at(at) { state.at = at.map((n, a) => Math.max(0, Math.min(shape[a] - 1, n))); refresh(); },
    move(along, by) { const at = [...state.at]; at[along] += by; tell.at(at); },
    window(range) { state.window = range; refresh(); },
  };
  const slice = (k) => { state.at[axis] = Math.max(0, Math.min(slices - 1, k)); refresh(); };
  const frame = (n) => { state.frame = (n + about.frames.length) % about.frames.length; perFrame(); refresh(); };

  // Controls
  const button = (text, title, press) => make("button", { type: "button", title, "aria-pressed": "false", onclick: press }, text);
  const views = { slice: button("Slice", "One slice (v)", () => view("slice")), planes: button("Planes", "Three planes (v)", () => view("planes")) };
  views["3d"] = button("3-D", library ? "Surfaces (v)" : "Needs NiiVue and WebGL2: `mona doctor` says how", () => view("3d"));
  views["3d"].disabled = !library;
  find("views").append(...Object.values(views));
  const view = (name) => { state.view = name; refresh(); };
  const layer = (name, part) => { state[name][part] = !state[name][part]; refresh(); };
  const toggles = {
    mask: button("Mask", "Mask on or off (m)", () => layer("mask", "on")),
    reference: layers.reference && button("Reference", "Reference on or off (r)", () => layer("reference", "on")),
    outline: button("Outline", "Mask as outline (o)", () => layer("mask", "outline")),
    zoom: button("Zoom", "Zoom to the mask (z)", () => { state.zoom = !state.zoom; refresh(); }),
  };
  find("toggles").append(...Object.values(toggles).filter(Boolean));
  const strength = (name, text) => {
    const input = make("input", { type: "range", id: `${name}-opacity`, min: 0, max: 100, oninput: () => { state[name].opacity = input.value / 100; refresh(); } });
    return [input, make("div", { class: "slider" }, make("label", { for: `${name}-opacity` }, text), input)];
  };
  const [maskStrength, maskRow] = strength("mask", "Mask opacity");
  const [referenceStrength, referenceRow] = strength("reference", "Reference opacity");
  const windowing = layers.scan ? windowControls(about, state, () => refresh()) : null;
  const smooth = make("input", { type: "checkbox", id: "smooth", onchange: () => { state.smooth = smooth.checked; refresh(); } });
  const filled = make("input", { type: "checkbox", id: "filled", onchange: () => { state.reference.outline = !filled.checked; refresh(); } });
  find("look").append(maskRow, ...(layers.reference ? [referenceRow, make("label", { class: "check", for: "filled" }, filled, "Reference filled, not as outline")] : []),
    ...(windowing ? [windowing.element, make("label", { class: "check", for: "smooth" }, smooth, "Smooth pixels of the scan (s)")] : []),
    make("button", { type: "button", onclick: () => reset() }, "Reset view (0)"));
  const reset = () => { Object.assign(state, first(), { frame: state.frame }); state.at[axis] = fullest(about, state.at[axis]); perFrame(); refresh(); };

  find("slice").max = slices;
  find("slice").addEventListener("input", () => slice(find("slice").value - 1));
  let timer = 0, curves = null;
  if (about.frames.length > 1) {
    find("frames").hidden = find("heart").hidden = false;
    find("frame").max = about.frames.length;
    find("frame").addEventListener("input", () => frame(find("frame").value - 1));
    find("play").addEventListener("click", () => play());
    curves = volumeCurves(about.frames, classes, about.cine, frame);
    find("curves").append(curves.element);
    find("beat").textContent = beat(about);
  }
  const play = () => {
    timer = timer ? (clearInterval(timer), 0) : setInterval(() => frame(state.frame + 1), Math.max(40, about.interval ?? 80));
    find("play").textContent = timer ? "Stop" : "Play";
    find("play").setAttribute("aria-pressed", String(Boolean(timer)));
  };

  // What belongs to a frame: its areas, its slices to check, its numbers.
  let strip, worst = [];
  const flip = (n) => { state.hidden.has(n) ? state.hidden.delete(n) : state.hidden.add(n); perFrame(); refresh(); };
  const perFrame = () => {
    worst = worstSlices(about, state.frame);
    strip = sliceStrip(about.frames[state.frame].slices.areas, classes, new Set(worst.map(({ k }) => k)), slice);
    find("strip").replaceChildren(strip.element);
    find("worst").replaceChildren(...(worst.length ? [make("span", {}, "To check: "), ...worst.map(({ k, words }) =>
      make("button", { type: "button", class: "chip", "data-slice": k + 1, onclick: () => slice(k) }, `slice ${k + 1}, ${words}`))] : []));
    const focused = document.activeElement?.id;
    find("classes").replaceChildren(classTable(about, state.frame, { hidden: state.hidden, flip }));
    if (focused?.startsWith("class-")) find(focused)?.focus();
  };

  // The viewer
  find("waiting").remove();
  let viewer = library ? new GpuViewer(library, page.stage, layers, colours, tell) : new PlainViewer(page.stage, layers, colours, tell);
  try {
    await viewer.start();
  } catch (error) {
    console.warn(`NiiVue could not start (${error}); plain slices instead`);
    page.stage.replaceChildren();
    views["3d"].disabled = true;
    viewer = new PlainViewer(page.stage, layers, colours, tell);
  }

  const refresh = () => {
    viewer.update({ ...state });
    for (const [name, element] of Object.entries(views)) element.setAttribute("aria-pressed", String(state.view === name));
    const pressed = { mask: state.mask.on, reference: state.reference.on, outline: state.mask.outline, zoom: state.zoom };
    for (const [name, element] of Object.entries(toggles)) element?.setAttribute("aria-pressed", String(pressed[name]));
    const k = state.at[axis];
    find("slice").value = k + 1;
    find("slice-at").textContent = `${k + 1} / ${slices}`;
    find("frame").value = state.frame + 1;
    find("frame-at").textContent = `${state.frame + 1} / ${about.frames.length}`;
    find("place").textContent = placeText(layers, state, classes, about);
    page.stage.setAttribute("aria-label", `${about.name}, slice ${k + 1} of ${slices}`);
    strip.mark(k);
    curves?.mark(state.frame);
    maskStrength.value = 100 * state.mask.opacity;
    referenceStrength.value = 100 * state.reference.opacity;
    smooth.checked = state.smooth;
    filled.checked = !state.reference.outline;
    windowing?.show();
    for (const chip of find("worst").querySelectorAll(".chip")) chip.setAttribute("aria-current", String(Number(chip.dataset.slice) === k + 1));
    document.documentElement.dataset.slice = k + 1;
  };

  const nextWorst = () => { const here = worst.findIndex(({ k }) => k === state.at[axis]); if (worst.length) slice(worst[(here + 1) % worst.length].k); };
  const names = ["slice", "planes", ...(library ? ["3d"] : [])];
  const fainter = (by) => { state.mask.opacity = Math.max(0, Math.min(1, state.mask.opacity + by)); refresh(); };
  const actions = {
    ArrowUp: () => slice(state.at[axis] + 1), ArrowDown: () => slice(state.at[axis] - 1), PageUp: () => slice(state.at[axis] + 1), PageDown: () => slice(state.at[axis] - 1),
    ArrowRight: () => frame(state.frame + 1), ArrowLeft: () => frame(state.frame - 1), " ": () => about.frames.length > 1 && play(),
    v: () => view(names[(names.indexOf(state.view) + 1) % names.length]), m: () => layer("mask", "on"), r: () => layers.reference && layer("reference", "on"),
    o: () => layer("mask", "outline"), "[": () => fainter(-0.1), "]": () => fainter(0.1), w: nextWorst, z: () => toggles.zoom.click(),
    s: () => { state.smooth = !state.smooth; refresh(); }, 0: reset, "?": () => { find("keys").open = !find("keys").open; },
  };
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target, range = target instanceof HTMLInputElement && target.type === "range";
    if (target instanceof HTMLInputElement && target.type === "number") return;
    if (range && /^(Arrow|Page|Home|End)/.test(event.key)) return;
    if (event.key === " " && target.closest("button, summary, input, a")) return;
    const number = /^[1-9]$/.test(event.key) && Number(event.key) <= classes.length ? Number(event.key) : 0;
    const action = number ? () => flip(number) : actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }, true);

  find("about-page").append(...aboutPage(about, library));
  perFrame();
  refresh();
  document.documentElement.dataset.viewer = library && viewer instanceof GpuViewer ? "niivue" : "plain";
  requestAnimationFrame(() => requestAnimationFrame(() => { document.documentElement.dataset.ready = "yes"; }));
}

function subtitle(about) {
  const size = `${about.shape.join(" × ")} voxels of ${about.spacing.map((s) => Number(s.toFixed(3))).join(" × ")} mm`;
  return size + (about.frames.length > 1 ? `, ${about.frames.length} frames` : "");
}

function beat(about) {
  if (!about.cine) return "";
  const { ED, ES, stroke_ml, ejection_fraction } = about.cine;
  return `${about.cine.class}: ${ED.ml.toFixed(1)} mL at ED (frame ${ED.frame + 1}), ${ES.ml.toFixed(1)} mL at ES (frame ${ES.frame + 1}), ` +
    `stroke ${stroke_ml.toFixed(1)} mL, ejection fraction ${Math.round(100 * ejection_fraction)} %`;
}

// The smallest box around mask and reference in all frames, with room around it; all of the scan if they are empty.
function boxAround(layers, axis) {
  const { shape } = layers.mask, low = [...shape], high = [-1, -1, -1];
  for (const volume of [layers.mask, layers.reference].filter(Boolean)) {
    for (let frame = 0; frame < volume.frames; frame++) {
      const box = boxOf(volume, null, frame);
      for (let a = 0; box && a < 3; a++) { low[a] = Math.min(low[a], box.low[a]); high[a] = Math.max(high[a], box.high[a]); }
    }
  }
  if (high[0] < 0) return shape.map((n) => [0, n]);
  return shape.map((n, a) => {
    const room = Math.ceil(Math.max(4, 0.35 * (high[a] - low[a])));
    return a === axis ? [low[a], high[a] + 1] : [Math.max(0, low[a] - room), Math.min(n, high[a] + 1 + room)];
  });
}

// The slice with most in it, where there is anything.
function fullest(about, otherwise) {
  const sums = about.frames[0].slices.areas.map((row) => row.reduce((a, b) => a + b, 0));
  const most = Math.max(...sums);
  return most > 0 ? sums.indexOf(most) : otherwise;
}

function placeText(layers, state, classes, about) {
  const { at, frame } = state, label = (volume) => volume && volume.voxels[volume.index(at, Math.min(frame, volume.frames - 1))];
  const called = (n) => (n ? classes[n - 1].name : "background");
  const world = layers.mask.affine.map(([a, b, c, d]) => (a * at[0] + b * at[1] + c * at[2] + d).toFixed(1));
  const value = layers.scan ? `, intensity ${Number(layers.scan.value(at, Math.min(frame, layers.scan.frames - 1)).toPrecision(4))}${about.ct ? " HU" : ""}` : "";
  const reference = layers.reference ? `, reference: ${called(label(layers.reference))}` : "";
  return `(${world.join(", ")}) mm${value}, mask: ${called(label(layers.mask))}${reference}`;
}

function windowControls(about, state, changed) {
  const [low, high] = [Math.min(about.range[0], about.window[0]), Math.max(about.range[1], about.window[1])];
  const step = (high - low) / 1000 || 1;
  const input = (id, text, n) => {
    const element = make("input", { type: "range", id, min: low, max: high, step, oninput: () => {
      const value = Number(element.value);
      state.window = n ? [Math.min(state.window[0], value - step), value] : [value, Math.max(state.window[1], value + step)];
      changed();
    } });
    const shown = make("output", { for: id });
    return { element, shown, row: make("div", { class: "slider" }, make("label", { for: id }, text), element, shown) };
  };
  const ends = [input("black", "Black", 0), input("white", "White", 1)];
  const presets = about.ct ? { "Soft tissue": [-160, 240], Lung: [-1350, 150], Bone: [-450, 1050], Brain: [0, 80] } : {};
  const set = (range) => () => { state.window = [...range]; changed(); };
  const chips = Object.entries({ ...presets, "Reset": about.window, "Full range": about.range }).map(([name, range]) => make("button", { type: "button", class: "chip", onclick: set(range) }, name));
  return {
    element: make("div", {}, ...ends.map(({ row }) => row), make("div", { class: "chips", role: "group", "aria-label": "Grey values" }, ...chips)),
    show: () => ends.forEach(({ element, shown }, n) => { element.value = state.window[n]; shown.textContent = Number(state.window[n].toPrecision(4)); }),
  };
}

function aboutPage(about, library) {
  const shown = [];
  if (about.halved) shown.push("Shown at half the resolution within a slice, so that browsers can open it; the numbers are of the full scan.");
  if (about.bits === 8 && about.large) shown.push("Grey values are shown in 256 steps.");
  if (about.files.length) shown.push(`Files: ${about.files.join(", ")}`);
  const made = `Made by mona ${about.version}${about.made_by ? ` with ${about.made_by}` : ""}. The page holds everything it needs: it loads nothing and sends nothing. It is for research, not for diagnosis. It holds the scan itself: pass it on only as you would the scan.`;
  const plain = library ? null : about.licence ? "Plain slices: this browser offers no WebGL2." : "Plain slices: NiiVue was not installed when the page was made. `mona doctor` says how to fetch it.";
  const licence = about.licence ? make("details", {}, make("summary", {}, "Drawn with NiiVue (BSD-2)"), make("pre", {}, about.licence)) : null;
  return [...shown, made, plain].filter(Boolean).map((text) => make("p", {}, text)).concat(licence ? [licence] : []);
}

showCase().catch((error) => {
  const text = `This page could not be shown: ${error.message ?? error}. Try a current Firefox, Chrome, Edge or Safari.`;
  find("stage").replaceChildren(make("p", { class: "waiting" }, text));
  console.error(error);
});
