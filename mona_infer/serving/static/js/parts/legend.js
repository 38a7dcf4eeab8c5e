// The classes with their colours and volumes; a click hides or shows one.
import { el, replace } from "../core/dom.js";
import { css } from "../core/classes.js";
import { ml } from "../core/words.js";

export function legend(classes, onHidden) {
  const hidden = new Set();
  const rows = classes.slice(1).map((entry, at) => {
    const number = at + 1;
    const value = el("span", { class: "value" });
    const button = el("button", {
      type: "button", class: "legend-entry", "aria-pressed": "true", title: "Show or hide",
      on: {
        click: () => {
          if (!hidden.delete(number)) hidden.add(number);
          button.setAttribute("aria-pressed", String(!hidden.has(number)));
          onHidden(new Set(hidden));
        },
      },
    }, el("span", { class: "swatch", style: { "--class": css(entry.rgb) } }), el("span", { class: "name" }, entry.name), value);
    return { button, value };
  });
  return {
    node: el("div", { class: "legend", role: "group", "aria-label": "Classes" }, rows.map(({ button }) => button)),
    /** Millilitres by class number, the background's first. */
    setVolumes(volumes) {
      rows.forEach(({ value }, at) => replace(value, volumes ? ml(volumes[at + 1]) : ""));
    },
  };
}
