// Numbers and states as a person would say them.

export const percent = (share) => `${Math.round(100 * share)} %`;
export const ml = (value) => `${value < 10 ? value.toFixed(2) : value.toFixed(1)} mL`;
export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
export const score = (value) => (Number.isFinite(value) ? value.toFixed(3) : "–");

export function bytes(n) {
  if (n < 1e6) return `${Math.max(1, Math.round(n / 1e3))} kB`;
  return n < 1e9 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e9).toFixed(1)} GB`;
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

export const LABELLED = {
  none: ["Not labelled", "quiet"], given: ["Labelled", "good"], corrected: ["Corrected here", "good"],
};

/** How much a prediction should be doubted, in words: a number alone tells a reader little. */
export function doubtWords(doubt) {
  if (doubt === null || doubt === undefined) return null;
  if (doubt >= 0.66) return ["Look at this first", "bad"];
  if (doubt >= 0.33) return ["Worth a look", "warn"];
  return ["Looks sure", "good"];
}

const STATES = {
  waiting: "Waiting", running: "Running", done: "Done", failed: "Failed", cancelled: "Cancelled",
};
export const stateWord = (state) => STATES[state] ?? state;

export function waitingWords(before) {
  if (before === 0) return "Next in the queue";
  return before === 1 ? "One job is before this one" : `${before} jobs are before this one`;
}
