// Numbers and states as a person would say them.

export const percent = (share) => `${Math.round(100 * share)} %`;
export const ml = (value) => `${value < 10 ? value.toFixed(2) : value.toFixed(1)} mL`;
export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
export const score = (value) => (Number.isFinite(value) ? value.toFixed(3) : "–");

export function listed(names) {
  if (names.length > 6) return `${names.slice(0, 5).join(", ")} and ${names.length - 5} more`;
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names.join("");
}

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
  none: ["Not labelled", "quiet"],
  given: ["Labelled", "good"],
  corrected: ["Corrected here", "good"],
};

/** The least certain class of a prediction, and how it reads: the server's doubt is 1 less that certainty. */
export function certainty(doubt) {
  if (doubt === null || doubt === undefined) return null;
  return [`Certainty ${percent(1 - doubt)}`, doubt >= 0.3 ? "bad" : doubt >= 0.15 ? "warn" : "good"];
}

const STATES = {
  waiting: "Waiting",
  running: "Running",
  done: "Done",
  failed: "Failed",
  cancelled: "Cancelled",
};
export const stateWord = (state) => STATES[state] ?? state;

export function waitingWords(before) {
  if (before === 0) return "Next in the queue";
  return before === 1 ? "One job is ahead of this one" : `${before} jobs are ahead of this one`;
}
