// The surface of a class: surface nets (one point per cell that the border crosses), smoothed, in millimetres.

const FACES = 400000; // beyond so many, every second voxel is taken

function surfaceOf(labels, wanted, frame) {
  const box = boxOf(labels, wanted, frame);
  for (let step = 1; box && step <= 8; step *= 2) {
    const net = surfaceNet(labels, wanted, frame, box, step);
    if (net.quads.length <= 4 * FACES) return smoothed(net, straight(labels));
  }
  return null;
}

// First and last voxel along x, y and z of a class, or (null) of all; null where there is none.
function boxOf(labels, wanted, frame) {
  const [nx, ny, nz] = labels.shape, low = [nx, ny, nz], high = [-1, -1, -1];
  let n = labels.size * frame;
  for (let z = 0; z < nz; z++)
    for (let y = 0; y < ny; y++)
      for (let x = 0; x < nx; x++, n++) {
        if (wanted === null ? !labels.voxels[n] : labels.voxels[n] !== wanted) continue;
        if (x < low[0]) low[0] = x;
        if (y < low[1]) low[1] = y;
        if (z < low[2]) low[2] = z;
        if (x > high[0]) high[0] = x;
        if (y > high[1]) high[1] = y;
        if (z > high[2]) high[2] = z;
      }
  return high[0] < 0 ? null : { low, high };
}

function surfaceNet(labels, wanted, frame, { low, high }, step) {
  const [sx, sy, sz] = labels.strides(), steps = labels.shape.map((n) => (n >= 32 * step ? step : 1));
  const shape = [0, 1, 2].map((a) => Math.ceil((high[a] - low[a] + 1) / steps[a]));
  const [nx, ny, nz] = shape.map((n) => n + 2); // one voxel of background around
  const start = labels.size * frame + low[0] * sx + low[1] * sy + low[2] * sz;
  const inside = new Uint8Array(nx * ny * nz);
  for (let z = 0; z < shape[2]; z++)
    for (let y = 0; y < shape[1]; y++)
      for (let x = 0; x < shape[0]; x++)
        if (labels.voxels[start + x * steps[0] * sx + y * steps[1] * sy + z * steps[2] * sz] === wanted)
          inside[x + 1 + nx * (y + 1 + ny * (z + 1))] = 1;
  const point = new Int32Array(inside.length).fill(-1), points = [], quads = [];
  const corners = [];
  for (let c = 0; c < 8; c++) corners.push((c & 1) + nx * (((c >> 1) & 1) + ny * (c >> 2)));
  for (let z = 0; z < nz - 1; z++)
    for (let y = 0; y < ny - 1; y++)
      for (let x = 0; x < nx - 1; x++) {
        const at = x + nx * (y + ny * z);
        let sum = 0, px = 0, py = 0, pz = 0, crossings = 0;
        for (let c = 0; c < 8; c++) sum += inside[at + corners[c]];
        if (sum === 0 || sum === 8) continue;
        for (let c = 0; c < 8; c++)
          for (const bit of [1, 2, 4])
            if (!(c & bit) && inside[at + corners[c]] !== inside[at + corners[c | bit]]) {
              px += (c & 1) + (bit === 1 ? 0.5 : 0);
              py += ((c >> 1) & 1) + (bit === 2 ? 0.5 : 0);
              pz += (c >> 2) + (bit === 4 ? 0.5 : 0);
              crossings++;
            }
        point[at] = points.length / 3;
        points.push(low[0] + (x - 1 + px / crossings) * steps[0], low[1] + (y - 1 + py / crossings) * steps[1], low[2] + (z - 1 + pz / crossings) * steps[2]);
      }
  // Every edge of the grid that the border crosses is the middle of a quad of the four cells around it.
  const strides = [1, nx, nx * ny];
  for (let z = 1; z < nz - 1; z++)
    for (let y = 1; y < ny - 1; y++)
      for (let x = 1; x < nx - 1; x++) {
        const at = x + nx * (y + ny * z);
        if (!inside[at]) continue;
        for (let a = 0; a < 3; a++) {
          const u = strides[(a + 1) % 3], v = strides[(a + 2) % 3];
          if (!inside[at + strides[a]]) quads.push(point[at], point[at - u], point[at - u - v], point[at - v]);
          if (!inside[at - strides[a]]) {
            const b = at - strides[a];
            quads.push(point[b], point[b - v], point[b - u - v], point[b - u]);
          }
        }
      }
  return { points, quads };
}

// Taubin's two steps, which smooth without shrinking; then triangles in world millimetres.
function smoothed({ points, quads }, affine) {
  const count = points.length / 3;
  let now = Float32Array.from(points);
  const around = new Uint16Array(count);
  for (let q = 0; q < quads.length; q++) around[quads[q]] += 2;
  const rounds = quads.length < 4 * 200000 ? 60 : 16; // thick slices make steps, which take many
  for (let round = 0; round < rounds; round++) {
    const sums = new Float32Array(now.length), factor = round % 2 ? -0.53 : 0.5;
    for (let q = 0; q < quads.length; q += 4)
      for (let c = 0; c < 4; c++) {
        const a = 3 * quads[q + c], b = 3 * quads[q + ((c + 1) % 4)];
        for (let n = 0; n < 3; n++) { sums[a + n] += now[b + n]; sums[b + n] += now[a + n]; }
      }
    const next = new Float32Array(now.length);
    for (let p = 0; p < count; p++)
      for (let n = 0; n < 3; n++) next[3 * p + n] = now[3 * p + n] + factor * (sums[3 * p + n] / around[p] - now[3 * p + n]);
    now = next;
  }
  for (let p = 0; p < now.length; p++) now[p] = affine[p % 3][p % 3] * now[p] + affine[p % 3][3];
  const triangles = new Uint32Array(quads.length * 1.5);
  for (let q = 0, t = 0; q < quads.length; q += 4, t += 6) {
    const [a, b, c, d] = quads.slice(q, q + 4);
    triangles.set([a, b, c, a, c, d], t);
  }
  return { points: now, triangles };
}
