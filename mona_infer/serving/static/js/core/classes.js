// The classes of the model: the page counts them 0, 1, 2, ... whatever their ids in files are, so that a mask is bytes.

/** `{id, name, rgb}` of each class, the background first: those of the model, or of the data set. */
export function classesOf(info, first = "model") {
  const given = first === "model" ? info.model?.classes : info.dataset?.classes;
  const listed = (given ?? info.model?.classes ?? info.dataset?.classes ?? []).map((entry) => ({
    id: entry.id,
    name: entry.name,
    rgb: rgb(entry.color ?? entry.colour),
  }));
  const background = listed.find((entry) => entry.id === 0) ?? { id: 0, name: "background", rgb: [0, 0, 0] };
  return [background, ...listed.filter((entry) => entry.id !== 0).sort((a, b) => a.id - b.id)];
}

function rgb(colour) {
  if (Array.isArray(colour)) return colour.slice(0, 3);
  const digits = /^#?([0-9a-f]{6})$/i.exec(colour ?? "")?.[1] ?? "888888";
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
}

export const css = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;

/** The classes and, in grey, further ids that a label holds, so that saving it does not lose them. */
export function withIdsOf(ids, classes) {
  const known = new Set(classes.map((entry) => entry.id));
  const others = [...new Set(ids)].filter((id) => !known.has(id)).sort((a, b) => a - b);
  return [...classes, ...others.map((id) => ({ id, name: `id ${id} (not of this model)`, rgb: [150, 150, 150] }))];
}

/** Class numbers for ids of a file. */
export function toNumbers(ids, classes) {
  const table = new Map(classes.map((entry, number) => [entry.id, number]));
  return Uint8Array.from(ids, (id) => table.get(id) ?? 0);
}

export function toIds(numbers, classes) {
  return Uint16Array.from(numbers, (number) => classes[number].id);
}

/** Voxels of each class number. */
export function counts(numbers, classes) {
  const found = new Array(classes.length).fill(0);
  for (const number of numbers) found[number] += 1;
  return found;
}
