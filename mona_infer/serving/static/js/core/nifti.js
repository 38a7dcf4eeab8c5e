// NIfTI-1 and -2, as far as the page needs them: the header, the voxels, and a label file with a scan's own header.

const FORMATS = {
  348: {
    dims: 40,
    dim: "Int16",
    type: 70,
    bits: 72,
    pixdim: 76,
    real: "Float32",
    offset: 108,
    slope: 112,
    inter: 116,
    window: [124, 128],
    qform: 252,
    sform: 254,
    code: "Int16",
    quatern: 256,
    rows: 280,
    start: 352,
    // data_type and db_name, descrip and aux_file, intent_name: free text, where some programs leave a patient's name
    texts: [
      [4, 28],
      [148, 104],
      [328, 16],
    ],
  },
  540: {
    dims: 16,
    dim: "BigInt64",
    type: 12,
    bits: 14,
    pixdim: 104,
    real: "Float64",
    offset: 168,
    slope: 176,
    inter: 184,
    window: [192, 200],
    qform: 344,
    sform: 348,
    code: "Int32",
    quatern: 352,
    rows: 400,
    start: 544,
    texts: [
      [240, 104],
      [508, 16],
    ],
  },
};
const ARRAYS = {
  2: Uint8Array,
  4: Int16Array,
  8: Int32Array,
  16: Float32Array,
  64: Float64Array,
  256: Int8Array,
  512: Uint16Array,
  768: Uint32Array,
  1024: BigInt64Array,
  1280: BigUint64Array,
};
const UINT8 = 2;
const UINT16 = 512;

/** The bytes of a file that may be compressed. */
export async function unzipped(buffer) {
  const bytes = new Uint8Array(buffer);
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return buffer;
  return new Response(new Blob([buffer]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

export async function zipped(bytes) {
  return new Response(new Blob([bytes]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
}

/** `{little, dims: [x, y, z, frames], spacing, affine, type, slope, inter, offset}` of an uncompressed file. */
export function readHeader(buffer) {
  const view = new DataView(buffer);
  const { format, little } = formatOf(view);
  const at = (kind, byte) => Number(view[`get${kind}`](byte, little));
  const size = { Int16: 2, BigInt64: 8, Float32: 4, Float64: 8 };
  const dim = (n) => at(format.dim, format.dims + n * size[format.dim]);
  const pixdim = (n) => at(format.real, format.pixdim + n * size[format.real]);
  const dims = [1, 2, 3, 4].map((n) => (n <= dim(0) ? Math.max(1, dim(n)) : 1));
  const header = {
    little,
    dims,
    type: at("Int16", format.type),
    offset: at(format === FORMATS[348] ? "Float32" : "BigInt64", format.offset),
    slope: at(format.real, format.slope),
    inter: at(format.real, format.inter),
    pixdim: [1, 2, 3].map(pixdim),
  };
  const real = (byte) => at(format.real, byte);
  header.affine = affineOf(format, at, real, size[format.real], pixdim);
  header.spacing = [0, 1, 2].map((axis) => Math.hypot(...header.affine.map((row) => row[axis])) || 1);
  return header;
}

function formatOf(view) {
  for (const little of [true, false]) {
    const format = view.byteLength >= 4 ? FORMATS[view.getInt32(0, little)] : undefined;
    if (format && view.byteLength >= format.start) return { format, little };
  }
  throw new Error("This is not a NIfTI file.");
}

function affineOf(format, at, real, bytes, pixdim) {
  if (at(format.code, format.sform) > 0) {
    return [0, 1, 2].map((row) => [0, 1, 2, 3].map((column) => real(format.rows + (4 * row + column) * bytes)));
  }
  if (at(format.code, format.qform) <= 0) {
    return [0, 1, 2].map((row) => [0, 1, 2, 3].map((column) => (row === column ? pixdim(row + 1) || 1 : 0)));
  }
  const [b, c, d, x, y, z] = [0, 1, 2, 3, 4, 5].map((n) => real(format.quatern + n * bytes));
  const a = Math.sqrt(Math.max(0, 1 - b * b - c * c - d * d));
  const turn = [
    [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
    [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
    [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - c * c - b * b],
  ];
  const scale = [pixdim(1), pixdim(2), pixdim(3) * (pixdim(0) < 0 ? -1 : 1)];
  return turn.map((row, n) => [...row.map((value, axis) => value * scale[axis]), [x, y, z][n]]);
}

/** The stored numbers of one frame in file order, not scaled. */
export function voxels(buffer, header, frame = 0) {
  const kind = ARRAYS[header.type];
  if (!kind) throw new Error(`The page cannot show voxels of NIfTI type ${header.type}.`);
  const [x, y, z] = header.dims;
  const count = x * y * z;
  const start = header.offset + frame * count * kind.BYTES_PER_ELEMENT;
  const bytes = buffer.slice(start, start + count * kind.BYTES_PER_ELEMENT);
  if (bytes.byteLength < count * kind.BYTES_PER_ELEMENT) throw new Error("The file ends before its last voxel.");
  if (!header.little && kind.BYTES_PER_ELEMENT > 1) reverse(new Uint8Array(bytes), kind.BYTES_PER_ELEMENT);
  const found = new kind(bytes);
  return found instanceof BigInt64Array || found instanceof BigUint64Array ? Float64Array.from(found, Number) : found;
}

function reverse(bytes, width) {
  for (let n = 0; n < bytes.length; n += width) bytes.subarray(n, n + width).reverse();
}

/** Class ids of one frame, with the file's scale applied: some programs store labels scaled. */
export function labels(buffer, header, frame = 0) {
  const stored = voxels(buffer, header, frame);
  const slope = header.slope && Number.isFinite(header.slope) ? header.slope : 1;
  const inter = Number.isFinite(header.inter) ? header.inter : 0;
  return Uint16Array.from(stored, slope === 1 && inter === 0 ? Number : (value) => Math.round(value * slope + inter));
}

/** A label file on a scan's own grid: the scan's header with nothing changed but the type of its voxels. */
export function labelFile(buffer, ids) {
  const source = new DataView(buffer);
  const { format, little } = formatOf(source);
  const { dims } = readHeader(buffer);
  if (ids.length !== dims[0] * dims[1] * dims[2])
    throw new Error("The label does not have as many voxels as the scan.");
  const wide = ids.some((id) => id > 255);
  const out = new Uint8Array(format.start + ids.length * (wide ? 2 : 1)); // the bytes between say: no extensions
  out.set(new Uint8Array(buffer, 0, format === FORMATS[348] ? 348 : 540));
  for (const [start, length] of format.texts) out.fill(0, start, start + length);
  const view = new DataView(out.buffer);
  const whole = (byte, value) =>
    format.dim === "Int16" ? view.setInt16(byte, value, little) : view.setBigInt64(byte, BigInt(value), little);
  const real = (byte, value) => view[`set${format.real}`](byte, value, little);
  const step = format.dim === "Int16" ? 2 : 8;
  [3, ...dims.slice(0, 3), 1, 1, 1, 1].forEach((value, n) => whole(format.dims + n * step, value));
  view.setInt16(format.type, wide ? UINT16 : UINT8, little);
  view.setInt16(format.bits, wide ? 16 : 8, little);
  if (format === FORMATS[348]) view.setFloat32(format.offset, format.start, little);
  else view.setBigInt64(format.offset, BigInt(format.start), little);
  real(format.slope, 1);
  real(format.inter, 0);
  for (const byte of format.window) real(byte, 0);
  if (wide) ids.forEach((id, n) => view.setUint16(format.start + 2 * n, id, little));
  else out.set(ids, format.start);
  return out;
}
