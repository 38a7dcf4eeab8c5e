// Following a job until it ends: by the server's events, and by asking where those do not come through.
import { api } from "./api.js";

const ENDED = new Set(["done", "failed", "cancelled"]);
const PATIENCE = 5000; // ms without an event before the job is asked for

export const ended = (job) => ENDED.has(job.state);

/** Calls `told(job)` at each change and resolves with the finished job; `signal` stops following, not the job. */
export function follow(id, told, signal) {
  return new Promise((resolve, reject) => {
    let latest = { id, state: "waiting", progress: 0, message: "", curve: [] };
    let timer = null;
    const events = api.events(id);
    const stop = () => {
      events.close();
      clearTimeout(timer);
    };
    const ask = async () => {
      clearTimeout(timer);
      try {
        take(await api.job(id));
      } catch (error) {
        if (error.status !== 0) return fail(error);
        told({ ...latest, message: error.message }); // the server may be restarting: jobs survive that
      }
      if (!ended(latest) && !signal?.aborted) timer = setTimeout(ask, PATIENCE);
    };
    const fail = (error) => {
      stop();
      reject(error);
    };
    const take = (change) => {
      if (signal?.aborted || ended(latest)) return;
      const { curve, ...rest } = change;
      const point = pointOf(change);
      latest = { ...latest, ...rest, curve: curve ?? (point ? joined(latest.curve, point) : latest.curve) };
      told(latest);
      if (ended(latest)) {
        stop();
        resolve(latest);
      }
    };
    const heard = (event) => {
      clearTimeout(timer);
      timer = setTimeout(ask, PATIENCE);
      let change;
      try {
        change = JSON.parse(event.data);
      } catch {
        return;
      }
      // An end is read from the job itself, which also holds the result.
      if (ended(change)) ask();
      else take(change);
    };
    for (const name of ["message", "progress", "curve", "state"]) events.addEventListener(name, heard);
    signal?.addEventListener("abort", () => {
      stop();
      resolve(latest);
    });
    ask();
  });
}

function pointOf(change) {
  const point = change.point ?? change;
  return Number.isFinite(point.step) && (Number.isFinite(point.dsc) || Number.isFinite(point.loss)) ? point : null;
}

function joined(curve, point) {
  return [...curve.filter((other) => other.step !== point.step), point].sort((a, b) => a.step - b.step);
}

/** How many jobs are done before a waiting one: training waits only for training, and segmenting for segmenting. */
export async function jobsBefore(job) {
  const lane = (kind) => kind === "train";
  return (await api.jobs()).filter(
    (other) =>
      other.id !== job.id &&
      !ended(other) &&
      lane(other.kind) === lane(job.kind) &&
      (other.state === "running" || other.created < job.created),
  ).length;
}
