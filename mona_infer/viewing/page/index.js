// The page of all cases.  They come in the order of doubt.

function showAll() {
  const all = json("all"), colours = Object.fromEntries(all.classes.map((c) => [c.name, c.colour]));
  find("name").textContent = all.title;
  const failed = all.cases.filter((c) => c.error).length, scored = all.cases.some((c) => typeof c.dsc === "number");
  const parts = [`${all.cases.length} case${all.cases.length === 1 ? "" : "s"}`];
  if (failed) parts.push(`${failed} failed`);
  if (scored) {
    const values = all.cases.map((c) => c.dsc).filter((d) => typeof d === "number");
    parts.push(`mean DSC ${(values.reduce((a, b) => a + b, 0) / values.length).toFixed(3)}`);
  }
  find("subtitle").textContent = `${parts.join(", ")}. Made by mona ${all.version}${all.made_by ? ` with ${all.made_by}` : ""}.`;

  const byName = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });
  const orders = { "Doubtful first": null, "Name": byName };
  for (const c of all.classes.slice(0, 6)) orders[c.name] = (a, b) => (b.ml?.[c.name] ?? -1) - (a.ml?.[c.name] ?? -1) || byName(a, b);
  let order = "Doubtful first";
  const buttons = Object.keys(orders).map((name) => make("button", {
    type: "button", title: colours[name] ? `Largest ${name} first` : "", onclick: () => { order = name; show(); },
  }, name));
  find("orders").append(...buttons);
  const cards = new Map(all.cases.map((c) => [c, card(c, colours)]));

  const show = () => {
    const wanted = find("find").value.trim().toLowerCase();
    const shown = all.cases.filter((c) => c.name.toLowerCase().includes(wanted));
    if (orders[order]) shown.sort(orders[order]);
    find("cases").replaceChildren(...shown.map((c) => cards.get(c)));
    find("count").textContent = shown.length === all.cases.length ? "" : `${shown.length} of ${all.cases.length}`;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === order));
  };
  find("find").addEventListener("input", show);
  show();
  document.documentElement.dataset.ready = "yes";
}

function card(c, colours) {
  const picture = c.thumbnail ? make("img", { src: c.thumbnail, alt: "", loading: "lazy" }) : make("span", { class: "none" }, "no picture");
  const name = c.page ? make("a", { href: c.page }, ...breakable(c.name)) : make("b", {}, ...breakable(c.name));
  const facts = [];
  if (typeof c.dsc === "number") facts.push(make("span", {}, "DSC ", make("b", {}, c.dsc.toFixed(3))));
  if (typeof c.sure === "number") facts.push(make("span", { title: "Certainty of the least certain class" }, "certainty ", make("b", {}, `${Math.round(100 * c.sure)} %`)));
  if (typeof c.ejection_fraction === "number") facts.push(make("span", {}, "EF ", make("b", {}, `${Math.round(100 * c.ejection_fraction)} %`)));
  const volumes = Object.entries(c.ml ?? {}).map(([n, ml]) =>
    make("span", {}, make("span", { class: "swatch", style: { background: css(colours[n] ?? [128, 128, 128]) } }), `${n} ${ml.toFixed(ml < 10 ? 2 : 1)} mL`));
  const warnings = (c.warnings ?? []).map((w) => make("span", { class: "doubt" }, w));
  return make("li", { class: warnings.length || c.error ? "doubtful" : "" }, picture, make("div", { class: "text" }, name,
    facts.length ? make("span", { class: "volumes" }, ...facts) : null, volumes.length ? make("span", { class: "volumes" }, ...volumes) : null,
    ...warnings, c.error ? make("span", { class: "failed" }, c.error) : null));
}

showAll();
