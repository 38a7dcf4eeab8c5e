// The drawing tools as a toolbar: a pen for each class, fill, erase, brush size, undo and redo; each has a key.
import { el, icon, replace } from "../core/dom.js";
import { css } from "../core/classes.js";
import { slider } from "../parts/pane.js";

const TOOLS = [
  ["pen", "Pen", "p", "Paint the chosen class"],
  ["fill", "Fill area", "f", "Draw around an area: it is filled"],
  ["erase", "Erase", "e", "Rub out any class"],
  ["piece", "Remove piece", "r", "Click a separate piece to remove all of it"],
  ["look", "Look", "l", "Move through the scan without drawing"],
];

export function toolbar(session) {
  const tools = TOOLS.map(([tool, name, key, what]) =>
    el(
      "button",
      {
        type: "button",
        class: "tool",
        "aria-pressed": "false",
        "aria-keyshortcuts": key,
        title: `${what} (${key.toUpperCase()})`,
        data: { tool },
        on: { click: () => session.choose(tool) },
      },
      icon(tool),
      el("span", {}, name),
    ),
  );
  const pens = session.classes.slice(1).map((entry, at) =>
    el(
      "button",
      {
        type: "button",
        class: "pen",
        "aria-pressed": "false",
        "aria-keyshortcuts": at < 9 ? String(at + 1) : null,
        title: at < 9 ? `Draw ${entry.name} (${at + 1})` : `Draw ${entry.name}`,
        data: { number: at + 1 },
        on: { click: () => session.choose(session.tool === "fill" ? "fill" : "pen", at + 1) },
      },
      el("span", { class: "swatch", style: { "--class": css(entry.rgb) } }),
      entry.name,
    ),
  );
  const size = slider(
    "Brush",
    { min: 1, max: 21, step: 2, value: session.size },
    (value) => session.choose(session.tool, session.number, value),
    (value) => `${value} px`,
  );
  const undo = el(
    "button",
    { type: "button", title: "Undo (Ctrl+Z)", "aria-keyshortcuts": "Control+Z", on: { click: () => session.undo() } },
    icon("undo"),
    "Undo",
  );
  const redo = el(
    "button",
    {
      type: "button",
      title: "Redo (Ctrl+Shift+Z)",
      "aria-keyshortcuts": "Control+Shift+Z",
      on: { click: () => session.redo() },
    },
    icon("redo"),
    "Redo",
  );
  const protect = el("input", {
    type: "checkbox",
    on: {
      change: () => {
        session.protect = protect.checked;
      },
    },
  });
  const said = el("span", { class: "unseen", "aria-live": "polite" });
  const update = () => {
    for (const button of tools) button.setAttribute("aria-pressed", String(button.dataset.tool === session.tool));
    const painting = session.tool === "pen" || session.tool === "fill";
    for (const button of pens)
      button.setAttribute("aria-pressed", String(painting && Number(button.dataset.number) === session.number));
    size.set(session.size);
    undo.disabled = !session.history?.done.length;
    redo.disabled = !session.history?.undone.length;
    replace(said, painting ? `Drawing ${session.classes[session.number]?.name}` : "");
  };
  session.on("tool", update);
  session.on("change", update);
  update();
  return el(
    "div",
    { class: "draw-tools", role: "toolbar", "aria-label": "Drawing tools" },
    el("div", { class: "pens", role: "group", "aria-label": "Class to draw" }, pens),
    el("div", { class: "tools" }, tools),
    size.node,
    el("label", { class: "check" }, protect, "Leave other classes as they are"),
    el("div", { class: "tools" }, undo, redo),
    said,
  );
}

/** The keys of the tools; false where a key means nothing here. */
export function drawingKey(session, event) {
  const key = event.key.toLowerCase();
  if ((event.ctrlKey || event.metaKey) && key === "z") {
    if (event.shiftKey) session.redo();
    else session.undo();
    return true;
  }
  if ((event.ctrlKey || event.metaKey) && key === "y") {
    session.redo();
    return true;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  const tool = TOOLS.find(([, , letter]) => letter === key);
  if (tool) session.choose(tool[0]);
  else if (/^[1-9]$/.test(key) && Number(key) < session.classes.length)
    session.choose(session.tool === "fill" ? "fill" : "pen", Number(key));
  else if (key === "[") session.choose(session.tool, session.number, Math.max(1, session.size - 2));
  else if (key === "]") session.choose(session.tool, session.number, Math.min(21, session.size + 2));
  else return false;
  return true;
}
