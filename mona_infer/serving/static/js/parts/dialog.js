// A question with buttons, over the page; resolves with the value of the button, or null for Escape.
import { el } from "../core/dom.js";

export function ask(title, text, choices) {
  return new Promise((resolve) => {
    const buttons = choices.map(([value, label, kind]) =>
      el("button", { class: kind ?? "", type: "submit", value, autofocus: kind === "primary" }, label),
    );
    const dialog = el(
      "dialog",
      { "aria-labelledby": "dialog-title" },
      el(
        "form",
        { method: "dialog" },
        el("h2", { id: "dialog-title" }, title),
        el("p", {}, text),
        el("div", { class: "row end" }, buttons),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue || null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
