// Elements made from data.  Text is only ever set as text: names come from files.

function make(tag, attributes = {}, ...children) {
  const space = ["svg", "rect", "path", "circle", "line", "text", "title"].includes(tag) ? "http://www.w3.org/2000/svg" : null;
  const element = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const find = (id) => document.getElementById(id);
const css = ([r, g, b], alpha = 1) => `rgb(${r} ${g} ${b} / ${alpha})`;
const lighter = (colour) => colour.map((c) => Math.round(c + (255 - c) * 0.55));
const rounded = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));
// A name that may break after each of its parts.
const breakable = (name) => name.split(/(?<=[_/-])/).flatMap((part) => [part, document.createElement("wbr")]);
