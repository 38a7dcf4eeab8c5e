// The page's own modules on files that Python wrote: node round_trip.mjs STATIC SCAN LABEL WORLD OUT
// WORLD: the scan's voxels in world order; OUT: the label, taken to world order and back, under the scan's header.
import { readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [folder, ...jobs] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/js/core/${name}.js`).href);
const { labelFile, labels, readHeader, unzipped, voxels, zipped } = await load("nifti");
const { toFile, toWorld, worldOrder } = await load("world");

for (let n = 0; n < jobs.length; n += 4) {
  const [scan, label, world, out] = jobs.slice(n, n + 4);
  const open = async (path) => {
    const bytes = await readFile(path);
    return unzipped(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  };
  const image = await open(scan);
  const header = readHeader(image);
  const order = worldOrder(header.dims, header.affine);
  await writeFile(world, new Uint8Array(Float64Array.from(toWorld(voxels(image, header), order)).buffer));
  const mask = await open(label);
  const ids = toFile(toWorld(labels(mask, readHeader(mask)), order), order);
  await writeFile(out, new Uint8Array(await zipped(labelFile(image, ids))));
}
