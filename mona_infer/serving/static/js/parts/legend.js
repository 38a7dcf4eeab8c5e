// The classes with their colours and numbers; a click hides or shows one.
import { el, replace } from "../core/dom.js";
import { css } from "../core/classes.js";

export function legend(classes, onHidden) {
  const hidden = new Set();
  const rows = classes.slice(1).map((entry, at) => {
    const number = at + 1;
    const values = el("span", { class: "values" });
    const button = el(
      "button",
      {
        type: "button",
        class: "legend-entry",
        "aria-pressed": "true",
        title: "Show or hide",
        on: {
          click: () => {
            if (!hidden.delete(number)) hidden.add(number);
            button.setAttribute("aria-pressed", String(!hidden.has(number)));
            onHidden(new Set(hidden));
          },
        },
      },
      el("span", { class: "swatch", style: { "--class": css(entry.rgb) } }),
      el("span", { class: "name" }, entry.name),
      values,
    );
    return { button, values };
  });
  const heads = el("div", { class: "legend-heads", "aria-hidden": "true" });
  return {
    node: el(
      "div",
      { class: "legend", role: "group", "aria-label": "Classes" },
      heads,
      rows.map(({ button }) => button),
    ),
    /** `columns`: [name, text by class number]; screen readers hear the name with each number. */
    set(columns) {
      replace(
        heads,
        columns.map(([name]) => el("span", {}, name)),
      );
      rows.forEach(({ values }, at) =>
        replace(
          values,
          columns.map(([name, texts]) => el("span", {}, el("span", { class: "unseen" }, `${name} `), texts[at + 1])),
        ),
      );
    },
  };
}
