// Curves of DSC over steps as an SVG drawing; the same numbers are in a table for those who cannot see it.
import { el, replace, svg } from "../core/dom.js";
import { score } from "../core/words.js";

const [WIDE, NARROW, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [640, 360, 260, 44, 16, 14, 34];

/** `series`: [{name, points: [[step, dsc]], strong}]; `until`: the last step that the axis should reach. */
export function curves(series, { until = 0, label = "DSC while training" } = {}) {
  const width = window.innerWidth <= NARROW * 1.5 ? NARROW : WIDE; // scaled down, its numbers could not be read
  const shown = series.filter(({ points }) => points.length);
  const steps = shown.flatMap(({ points }) => points.map(([step]) => step));
  const values = shown.flatMap(({ points }) => points.map(([, dsc]) => dsc));
  const last = Math.max(until, 1, ...steps);
  const low = Math.min(1, ...values);
  const floor = low < 0.5 || !values.length ? 0 : low < 0.8 ? 0.5 : 0.8;
  const x = (step) => LEFT + ((width - LEFT - RIGHT) * step) / last;
  const y = (dsc) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (dsc - floor) / (1 - floor));
  const node = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, class: "curve", role: "img", "aria-label": label });
  const marks = ticks(floor, 1);
  const digits = marks[1] - marks[0] < 0.099 ? 2 : 1;
  for (const dsc of marks) {
    node.append(
      svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(dsc), y2: y(dsc), class: "grid" }),
      svg("text", { x: LEFT - 8, y: y(dsc) + 4, class: "tick end" }, dsc.toFixed(digits)),
    );
  }
  for (const step of ticks(0, last)) {
    node.append(svg("text", { x: x(step), y: HEIGHT - 12, class: "tick middle" }, short(step)));
  }
  shown.forEach(({ points, strong, name }, n) => {
    const kind = strong ? "strong" : `series-${n % 6}`;
    const path = points.map(([step, dsc], at) => `${at ? "L" : "M"}${x(step).toFixed(1)} ${y(dsc).toFixed(1)}`);
    node.append(svg("path", { d: path.join(""), class: `line ${kind}` }, svg("title", {}, name)));
    const [step, dsc] = points.at(-1);
    node.append(svg("circle", { cx: x(step), cy: y(dsc), r: 4, class: `dot ${kind}` }));
  });
  if (!shown.length) {
    node.append(
      svg(
        "text",
        { x: width / 2, y: HEIGHT / 2, class: "tick middle" },
        "The first point comes after the first validation",
      ),
    );
  }
  return node;
}

/** A curve that grows while a job runs. */
export function growingCurve(label) {
  const node = el("div", { class: "curve-holder" });
  return {
    node,
    set(points, until) {
      replace(
        node,
        curves([{ name: "this run", points, strong: true }], { until, label }),
        points.length
          ? el(
              "p",
              { class: "quiet" },
              `Latest DSC ${score(points.at(-1)[1])} at step ${points.at(-1)[0].toLocaleString("en")}.`,
            )
          : el("p", { class: "quiet" }, " "),
      );
    },
  };
}

function ticks(from, to) {
  const rough = (to - from) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const out = [];
  for (let value = from; value <= to + step * 1e-6; value += step) out.push(Math.round(value / step) * step);
  return out;
}

function short(step) {
  return step >= 1000 ? `${Math.round(step / 100) / 10}k` : String(Math.round(step));
}

/** The points of a job or a run that have a DSC, as [step, dsc]. */
export function pointsOf(curve = []) {
  return curve
    .map((point) => (Array.isArray(point) ? point : [point.step, point.dsc]))
    .filter(([, dsc]) => Number.isFinite(dsc));
}
