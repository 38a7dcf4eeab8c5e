// Messages: `problem` stays in the page where something failed; `say` passes by at the foot and is read aloud.
import { el, icon, replace } from "../core/dom.js";

export function problem(message, ...actions) {
  return el("div", { class: "notice bad", role: "alert" }, icon("warn"), el("p", {}, message), actions);
}

export function note(message, kind = "") {
  return el("div", { class: `notice ${kind}` }, icon(kind === "warn" ? "warn" : "check"), el("p", {}, message));
}

let timer = null;

export function say(message, kind = "") {
  const place = document.getElementById("say");
  clearTimeout(timer);
  replace(place, el("div", { class: `toast ${kind}` }, message));
  timer = setTimeout(() => replace(place), kind === "bad" ? 12000 : 5000);
}

/** An error of any kind as a sentence; what is a mistake of the page's own is also logged. */
export function explained(error) {
  if (error.name !== "ApiError" && error.constructor?.name !== "ApiError") console.error(error);
  return error.message || "Something went wrong. Reload the page and try again.";
}
