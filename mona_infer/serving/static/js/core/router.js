// Addresses like #/case/NAME.  A page may hold the reader back while it has unsaved changes.
let guard = null;
let current = null;

export const go = (path) => {
  location.hash = path;
};

/** `keep()` resolves false to stay on the page; null when there is nothing to lose. */
export function guardWith(keep) {
  guard = keep;
}

export function start(show) {
  current = location.hash;
  let returning = false;
  window.addEventListener("hashchange", async () => {
    if (returning) {
      returning = false;
      return;
    }
    const wanted = location.hash;
    if (guard && wanted !== current) {
      returning = true;
      location.hash = current; // stay until the answer is there
      if (!(await guard())) return;
      guard = null;
      current = wanted;
      returning = true;
      location.hash = wanted;
      show(parts(wanted));
      return;
    }
    current = wanted;
    show(parts(wanted));
  });
  window.addEventListener("beforeunload", (event) => {
    if (guard) event.preventDefault();
  });
  show(parts(current));
}

function parts(hash) {
  try {
    return hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  } catch {
    return [""]; // not an address that this page made
  }
}

export const link = (...names) => `#/${names.map(encodeURIComponent).join("/")}`;
