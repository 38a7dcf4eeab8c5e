// What the page holds: JSON, and gzipped files in base64.

function json(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

async function unpacked(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const raw = atob(element.textContent);
  element.remove(); // a large scan should not be held twice
  const bytes = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n++) bytes[n] = raw.charCodeAt(n);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// NIfTI-1 in little endian, as mona writes it: x to the right, y to the front, z to the head.
class Nifti {
  constructor(buffer) {
    const view = new DataView(buffer);
    const short = (at) => view.getInt16(at, true), float = (at) => view.getFloat32(at, true);
    const arrays = { 2: Uint8Array, 4: Int16Array, 512: Uint16Array };
    this.buffer = buffer;
    this.shape = [short(42), short(44), short(46)];
    this.frames = short(40) > 3 ? short(48) : 1;
    this.spacing = [float(80), float(84), float(88)];
    this.slope = float(112) || 1;
    this.intercept = float(116) || 0;
    this.affine = [280, 296, 312].map((at) => [0, 4, 8, 12].map((n) => float(at + n)));
    this.size = this.shape[0] * this.shape[1] * this.shape[2];
    this.voxels = new arrays[short(70)](buffer, float(108), this.size * this.frames);
  }

  index(at, frame = 0) {
    return at[0] + this.shape[0] * (at[1] + this.shape[1] * (at[2] + this.shape[2] * frame));
  }

  value(at, frame = 0) {
    return this.voxels[this.index(at, frame)] * this.slope + this.intercept;
  }

  strides() {
    return [1, this.shape[0], this.shape[0] * this.shape[1]];
  }
}

// Labels where a neighbour in the same slice has another one: the outline of every class.
function outlined(labels, axis) {
  const out = new Uint8Array(labels.voxels.length), from = labels.voxels;
  const strides = labels.strides(), [u, v] = [0, 1, 2].filter((n) => n !== axis);
  const [nx, ny, nz] = labels.shape;
  let n = 0;
  for (let frame = 0; frame < labels.frames; frame++)
    for (let z = 0; z < nz; z++)
      for (let y = 0; y < ny; y++)
        for (let x = 0; x < nx; x++, n++) {
          const label = from[n];
          if (!label) continue;
          const at = [x, y, z];
          for (const a of [u, v])
            if (at[a] === 0 || at[a] === labels.shape[a] - 1 ||
                from[n - strides[a]] !== label || from[n + strides[a]] !== label) {
              out[n] = label;
              break;
            }
        }
  return out;
}
