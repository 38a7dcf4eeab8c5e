// A bar with what is being done beside it.
import { el, replace } from "../core/dom.js";
import { percent } from "../core/words.js";

export function progressBar(label) {
  const bar = el("progress", { max: "1", "aria-label": label });
  const text = el("span", { class: "progress-text" });
  const share = el("span", { class: "progress-share" });
  const node = el("div", { class: "progress" }, el("div", { class: "row between" }, text, share), bar);
  return {
    node,
    /** `share` null: no telling how far it is. */
    set(message, done = null) {
      replace(text, message);
      replace(share, done === null ? "" : percent(done));
      if (done === null) bar.removeAttribute("value");
      else bar.value = done;
    },
  };
}
