// Elements are made here and nowhere else from markup: what a user or a file supplies only ever becomes text.

/** `el("p", {class: "note"}, "text")`; `on` holds listeners, `data` data attributes, false and null leave one out. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === "data") {
      Object.assign(node.dataset, value);
    } else if (name === "style") {
      // Property by property: a content security policy refuses style attributes.
      for (const [property, setting] of Object.entries(value)) node.style.setProperty(property, setting);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

const SHAPES = {
  pen: "M4 20l1-5L16 4l4 4L9 19z M14 6l4 4",
  fill: "M5 13c0-5 4-8 8-8s7 3 6 7-4 7-8 7-6-2-6-6z M9 13h.01 M12 10h.01 M12 15h.01 M15 12h.01",
  erase: "M8 20h11 M4 14l9-9 6 6-8 9H8z M9 9l6 6",
  piece: "M4 4h6v6H4z M15 13l5 5 M20 13l-5 5",
  undo: "M9 6L4 11l5 5 M4 11h10a5 5 0 010 10h-3",
  redo: "M15 6l5 5-5 5 M20 11H10a5 5 0 000 10h3",
  upload: "M12 16V4 M7 9l5-5 5 5 M4 16v4h16v-4",
  download: "M12 4v12 M7 11l5 5 5-5 M4 20h16",
  look: "M2 12s4-7 10-7 10 7 10 7-4 7-10 7-10-7-10-7z M12 9a3 3 0 100 6 3 3 0 000-6z",
  warn: "M12 4l9 16H3z M12 10v4 M12 17h.01",
  check: "M5 12l5 5 9-10",
  back: "M15 5l-7 7 7 7",
  next: "M9 5l7 7-7 7",
};

/** A line drawing that says nothing to a screen reader: the label beside it, or the button's, does. */
export function icon(name) {
  const path = svg("path", { d: SHAPES[name] });
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" }, path);
}
