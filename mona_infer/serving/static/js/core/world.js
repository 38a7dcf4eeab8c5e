// Between the order in which a file stores voxels and the order in which they are shown: first axis to the right,
// second to the front, third up (RAS).  No voxel is ever interpolated on the way: it is a permutation with flips.

/**
 * Which stored axis runs along which world axis, as NiiVue decides it (a test compares): in world order, voxel
 * (x, y, z) is the file's voxel `start + x step[0] + y step[1] + z step[2]`.
 */
export function worldOrder(dims, affine) {
  const size = (world, axis) => Math.abs(affine[world][axis]);
  const largest = (axis, worlds) =>
    worlds.reduce((best, world) => (size(world, axis) > size(best, axis) ? world : best));
  const first = largest(0, [0, 1, 2]);
  const others = [0, 1, 2].filter((world) => world !== first);
  // Of two equal ones NiiVue takes the later for the second axis.
  const second = size(others[0], 1) > size(others[1], 1) ? others[0] : others[1];
  const stored = [];
  stored[first] = 0;
  stored[second] = 1;
  stored[3 - first - second] = 2;
  const strides = [1, dims[0], dims[0] * dims[1]];
  const order = { dims: stored.map((axis) => dims[axis]), step: [], start: 0, stored };
  stored.forEach((axis, world) => {
    const flipped = affine[world][axis] < 0;
    order.step.push(flipped ? -strides[axis] : strides[axis]);
    if (flipped) order.start += strides[axis] * (dims[axis] - 1);
  });
  return order;
}

/** Voxels of file order brought to world order. */
export function toWorld(voxels, order) {
  const out = new voxels.constructor(voxels.length);
  eachVoxel(order, (world, file) => {
    out[world] = voxels[file];
  });
  return out;
}

/** And back: the inverse of `toWorld`, to the voxel. */
export function toFile(voxels, order) {
  const out = new voxels.constructor(voxels.length);
  eachVoxel(order, (world, file) => {
    out[file] = voxels[world];
  });
  return out;
}

function eachVoxel({ dims, step, start }, visit) {
  let world = 0;
  for (let z = 0; z < dims[2]; z += 1) {
    for (let y = 0; y < dims[1]; y += 1) {
      let file = start + z * step[2] + y * step[1];
      for (let x = 0; x < dims[0]; x += 1, file += step[0]) visit(world++, file);
    }
  }
}

/** The world axis a scan is sliced along: that of the thickest slices, else from foot to head. */
export function stackAxis(spacing) {
  const thickest = spacing.indexOf(Math.max(...spacing));
  const others = spacing.filter((_, axis) => axis !== thickest);
  return spacing[thickest] >= 1.5 * Math.max(...others) ? thickest : 2;
}
