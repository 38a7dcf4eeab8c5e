// A viewer with its controls: which view, slice, frame, mask opacity, brightness.
import { el, replace } from "../core/dom.js";
import { createViewer } from "../viewer/viewer.js";
import { note } from "./notice.js";

const VIEWS = [
  ["slices", "Slices"],
  ["planes", "Three planes"],
  ["3d", "3-D"],
];

export async function viewPane(classes) {
  const stage = el("div", { class: "stage" });
  const viewer = await createViewer(
    stage,
    classes.map((entry) => entry.rgb),
  );
  const controls = el("div", { class: "view-controls" });
  const place = el("output", { class: "place" });
  const views = segmented("View", VIEWS, "slices", (view) => viewer.setView(view));
  const slice = slider(
    "Slice",
    { min: 0, max: 1, step: 1 },
    (value) => viewer.goTo(value),
    (value) => `${value + 1} of ${viewer.slices}`,
  );
  const frame = slider(
    "Frame",
    { min: 0, max: 1, step: 1 },
    (value) => pane.setFrame(value),
    (value) => `${value + 1} of ${viewer.frames}`,
  );
  const opacity = slider(
    "Mask",
    { min: 0, max: 1, step: 0.05, value: 0.5 },
    (value) => viewer.setOpacity(value),
    (value) => `${Math.round(value * 100)} %`,
  );
  const bright = windowSliders(viewer);
  const settings = el(
    "details",
    { class: "settings" },
    el("summary", {}, "Mask and brightness"),
    el("div", { class: "sliders" }, opacity.node, bright.node),
  );
  viewer.on("slice", (at) => slice.set(at));
  stage.addEventListener(
    "keydown",
    (event) => {
      const by = { ArrowUp: 1, ArrowDown: -1, PageUp: 1, PageDown: -1 }[event.key];
      if (!by || event.target !== viewer.canvas) return;
      event.preventDefault();
      event.stopPropagation();
      viewer.goTo(viewer.slice + by);
    },
    true,
  );
  replace(
    controls,
    viewer.canDraw ? views.node : null,
    el("div", { class: "sliders" }, slice.node, frame.node),
    settings,
  );
  const plain = viewer.canDraw
    ? null
    : note(
        "Plain slices: this browser has no WebGL 2, or the server no NiiVue (`mona doctor` says how to get it). " +
          "You can look and compare here, but not draw.",
      );
  const pane = {
    node: el("section", { class: "pane", "aria-label": "Viewer" }, plain, stage, controls, place),
    viewer,
    onFrame: () => {},
    async show(buffer) {
      await viewer.show(buffer);
      slice.limit(0, viewer.slices - 1);
      slice.set(viewer.slice);
      frame.limit(0, Math.max(1, viewer.frames) - 1);
      frame.node.hidden = !(viewer.frames > 1);
      bright.start();
      stage.dataset.ready = "true";
    },
    setFrame(value) {
      viewer.setFrame(value);
      pane.onFrame(value);
    },
    close: () => viewer.close(),
  };
  return pane;
}

/** One of a few, as a row of buttons. */
export function segmented(label, choices, chosen, onChange) {
  const buttons = choices.map(([value, text]) =>
    el(
      "button",
      {
        type: "button",
        value,
        "aria-pressed": String(value === chosen),
        on: {
          click: () => {
            set(value);
            onChange(value);
          },
        },
      },
      text,
    ),
  );
  const set = (value) =>
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.value === value)));
  return { node: el("div", { class: "segmented", role: "group", "aria-label": label }, buttons), set, buttons };
}

export function slider(label, range, onInput, shown = String) {
  const output = el("output", {});
  const input = el("input", { type: "range", ...range, "aria-label": label });
  const write = () => replace(output, shown(Number(input.value)));
  input.addEventListener("input", () => {
    write();
    onInput(Number(input.value));
  });
  return {
    node: el("label", { class: "slider" }, el("span", {}, label), input, output),
    set(value) {
      input.value = value;
      write();
    },
    limit(min, max) {
      [input.min, input.max] = [min, max];
      write();
    },
  };
}

function windowSliders(viewer) {
  let [low, high] = [0, 1];
  const apply = () => viewer.setWindow(Math.min(low, high - 1e-6), high);
  const whole = (value) => Number(value.toPrecision(3)).toLocaleString("en");
  const dark = slider(
    "Black at",
    { step: "any" },
    (value) => {
      low = value;
      apply();
    },
    whole,
  );
  const light = slider(
    "White at",
    { step: "any" },
    (value) => {
      high = value;
      apply();
    },
    whole,
  );
  viewer.on("window", (from, to) => {
    [low, high] = [from, to];
    dark.set(from);
    light.set(to);
  });
  return {
    node: el("div", { class: "sliders" }, dark.node, light.node),
    start() {
      const [from, to] = viewer.range;
      const [shownFrom, shownTo] = viewer.window;
      const room = 0.5 * (to - from || 1);
      for (const each of [dark, light]) each.limit(from - room, to + room);
      dark.set(shownFrom);
      light.set(shownTo);
      [low, high] = [shownFrom, shownTo];
    },
  };
}
