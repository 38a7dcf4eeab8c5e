// Two small charts: what is in each slice, and a beating heart.

// Columns of areas, one per slice; a click goes there.
function sliceStrip(rows, classes, worst, go) {
  const width = 1000, height = 100, most = Math.max(1e-6, ...rows.map((row) => row.reduce((a, b) => a + b, 0)));
  const step = width / rows.length, gap = step < 8 ? 0 : Math.min(6, step * 0.15);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "strip", "aria-hidden": "true" });
  const columns = rows.map((row, k) => {
    const title = `Slice ${k + 1}: ` + (classes.filter((c, n) => row[n]).map((c, n) => `${c.name} ${Math.round(row[classes.indexOf(c)])} mm²`).join(", ") || "empty");
    const column = make("svg", { class: "column" }, make("title", {}, title));
    column.append(make("rect", { x: k * step, y: 0, width: step, height, class: "back" }));
    let top = height;
    classes.forEach((c, n) => {
      const tall = (row[n] / most) * (height - 14);
      top -= tall;
      if (tall > 0) column.append(make("rect", { x: k * step + gap / 2, y: top, width: step - gap, height: tall, fill: css(c.colour) }));
    });
    if (worst.has(k)) column.append(make("rect", { x: k * step + gap / 2, y: 0, width: step - gap, height: 6, class: "worst" }));
    column.addEventListener("click", () => go(k));
    return column;
  });
  svg.append(...columns);
  return { element: svg, mark: (at) => columns.forEach((column, k) => column.classList.toggle("here", k === at)) };
}

// Volumes over the frames of a cine, one line per class.
function volumeCurves(frames, classes, cine, go) {
  const width = 320, height = 120, last = Math.max(1, frames.length - 1);
  const volumes = classes.map((c) => frames.map((frame) => frame.classes[c.name]?.ml ?? 0));
  const most = Math.max(1e-6, ...volumes.flat());
  const x = (n) => 6 + ((width - 12) * n) / last, y = (ml) => height - 8 - ((height - 20) * ml) / most;
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, class: "curves", role: "img", "aria-label": "Volume of each class over the frames" });
  classes.forEach((c, n) => svg.append(make("path", {
    d: volumes[n].map((ml, f) => `${f ? "L" : "M"}${x(f).toFixed(1)},${y(ml).toFixed(1)}`).join(""), stroke: css(c.colour), fill: "none", "stroke-width": 2,
  })));
  for (const name of cine ? ["ED", "ES"] : []) {
    const moment = cine[name];
    svg.append(make("circle", { cx: x(moment.frame), cy: y(moment.ml), r: 4, class: "moment" }),
      make("text", { x: Math.min(width - 22, Math.max(2, x(moment.frame) - 8)), y: y(moment.ml) - 8, class: "label" }, name));
  }
  const line = make("line", { y1: 4, y2: height - 4, class: "now" });
  svg.append(line);
  svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width * width - 6) / (width - 12);
    go(Math.max(0, Math.min(last, Math.round(at * last))));
  });
  return { element: svg, mark: (n) => { line.setAttribute("x1", x(n)); line.setAttribute("x2", x(n)); } };
}
