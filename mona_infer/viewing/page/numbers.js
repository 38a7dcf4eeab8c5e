// The numbers of a case, each with what it means.

const MEANINGS = {
  mL: "Volume: the number of voxels of the class times the volume of a voxel, in millilitres.",
  Certainty: "How sure the network was: the mean probability of the class over the pixels where it won. It does not say how right it is.",
  DSC: "Dice score against the reference: 2 × overlap / (mask + reference). 1 is identical, 0 is no overlap.",
  ASD: "Average surface distance: how far the mask's border is from the reference's, on average. 0 is identical.",
  HD95: "95th percentile of the distances between both borders: nearly the worst place.",
};

function classTable(about, frame, toggle) {
  const { classes = {}, scores } = about.frames[frame];
  const sure = Object.values(classes).some((c) => c.confidence !== null && c.confidence !== undefined);
  const heads = ["mL", ...(sure ? ["Certainty"] : []), ...(scores ? ["DSC", "ASD", "HD95"] : [])];
  const row = (c, n) => {
    const entry = classes[c.name], score = scores?.[c.name];
    const cells = [rounded(entry?.ml, entry?.ml < 10 ? 2 : 1), ...(sure ? [entry?.confidence == null ? "–" : `${Math.round(100 * entry.confidence)} %`] : [])];
    if (scores) cells.push(rounded(score?.dsc, 3), ...["asd", "hd95"].map((m) => (score?.miss ? "miss" : rounded(score?.[m], 2))));
    const box = make("input", { type: "checkbox", id: `class-${n + 1}`, checked: !toggle.hidden.has(n + 1), onchange: () => toggle.flip(n + 1) });
    const swatch = make("span", { class: "swatch", style: { background: css(c.colour) } });
    const key = n < 9 ? make("kbd", {}, String(n + 1)) : null;
    return make("tr", {}, make("th", { scope: "row" }, make("label", { for: `class-${n + 1}` }, box, swatch, make("span", { class: "name" }, c.name), key)), ...cells.map((text) => make("td", {}, text)));
  };
  const head = make("tr", {}, make("th", { scope: "col" }, "Class"), ...heads.map((h) => make("th", { scope: "col", title: MEANINGS[h] }, h)));
  return make("table", { class: "classes" }, make("thead", {}, head), make("tbody", {}, ...about.classes.map(row)));
}

function meanings(about) {
  const { classes = {}, scores } = about.frames[0];
  const terms = ["mL"];
  if (Object.values(classes).some((c) => c.confidence !== null && c.confidence !== undefined)) terms.push("Certainty");
  if (scores) terms.push("DSC", "ASD", "HD95");
  const list = make("dl", {}, ...terms.flatMap((t) => [make("dt", {}, t), make("dd", {}, MEANINGS[t])]));
  if (about.cine) list.append(make("dt", {}, "Ejection fraction"), make("dd", {}, "The share of the left ventricle's blood that a beat pumps out: (ED − ES) / ED. ED is the frame in which it is largest, ES that in which it is smallest."));
  return make("div", {}, list, ...about.rules.map((rule) => make("p", {}, rule)));
}

// Slices to check, worst first: by their DSC where there is a reference, else by the network's confidence.
function worstSlices(about, frame, most = 5) {
  const { slices } = about.frames[frame];
  const mean = (row) => { const there = row.filter((d) => d !== null); return there.length ? there.reduce((a, b) => a + b, 0) / there.length : null; };
  const values = slices.dsc ? slices.dsc.map(mean) : slices.sure ?? [];
  const words = slices.dsc ? (v) => `DSC ${v.toFixed(2)}` : (v) => `${Math.round(100 * v)} % certain`;
  return values.map((value, k) => ({ k, value })).filter(({ value }) => value !== null && value < 0.9995)
    .sort((a, b) => a.value - b.value).slice(0, most).map(({ k, value }) => ({ k, words: words(value) }));
}
