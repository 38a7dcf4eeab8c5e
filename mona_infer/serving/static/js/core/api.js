// The server's REST API.  Every failure becomes an ApiError whose message is a sentence for the user.

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const GONE = "The server does not answer. Check that `mona serve` is still running, then try again.";
const address = (path) => new URL(path.replace(/^\//, ""), document.baseURI).href;
const named = (name) => encodeURIComponent(name);

async function request(path, options = {}) {
  let answer;
  try {
    answer = await fetch(address(path), { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, GONE);
  }
  if (!answer.ok) throw new ApiError(answer.status, await sentence(answer.status, await answer.text()));
  return answer;
}

/** What went wrong, in the server's own sentence where it gave one. */
async function sentence(status, text) {
  try {
    const { detail } = JSON.parse(text);
    if (typeof detail === "string" && detail) return asSentence(detail);
    if (Array.isArray(detail) && detail[0]?.msg) {
      return asSentence(`${detail[0].loc?.at(-1) ?? "The request"}: ${detail[0].msg}`);
    }
  } catch {
    // not JSON: a proxy's page, or nothing
  }
  const known = {
    401: "This server asks for a token. Open the address that `mona serve` printed, which contains it.",
    403: "The server refused the request. Open the page at the address that `mona serve` printed.",
    404: "That is no longer on the server. Go back and reload the page.",
    413: "The file is larger than the server accepts.",
    507: "The server's disk is full.",
  };
  return known[status] ?? `The server could not do that (error ${status}). Its log says why.`;
}

function asSentence(text) {
  const whole = text.trim();
  return whole.charAt(0).toUpperCase() + whole.slice(1) + (/[.!?]$/.test(whole) ? "" : ".");
}

const json = async (path, options) => (await request(path, options)).json();
const bytes = async (path, options) => (await request(path, options)).arrayBuffer();
const post = (path, body) =>
  json(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const api = {
  info: () => json("api/info"),
  cases: () => json("api/cases"),
  caseFile: (name, what, query = "") => bytes(`api/cases/${named(name)}/${what}${query}`, { cache: "no-store" }),
  caseThumbnail: (entry) => address(entry.thumbnail ?? `api/cases/${named(entry.name)}/thumbnail.png`),
  saveLabel: (name, body) =>
    json(`api/cases/${named(name)}/label`, {
      method: "PUT",
      body,
      headers: { "Content-Type": "application/octet-stream" },
    }),
  scans: () => json("api/scans"),
  scan: (id) => json(`api/scans/${named(id)}`),
  scanImage: (id) => bytes(`api/scans/${named(id)}/image`),
  scanMask: (id) => bytes(`api/scans/${named(id)}/mask?format=nii.gz`, { cache: "no-store" }),
  scanMaskAddress: (id, format) => address(`api/scans/${named(id)}/mask?format=${named(format)}`),
  deleteScan: (id) => request(`api/scans/${named(id)}`, { method: "DELETE" }),
  jobs: () => json("api/jobs"),
  job: (id) => json(`api/jobs/${named(id)}`),
  start: (job) => post("api/jobs", job),
  cancel: (id) => request(`api/jobs/${named(id)}`, { method: "DELETE" }),
  runs: () => json("api/runs"),
  useModel: (choice) => post("api/model", choice),
  events: (id) => new EventSource(address(`api/jobs/${named(id)}/events`)),
};

/** Send a file and hear how much of it has gone; `fetch` cannot tell that yet. */
export function upload(file, told, signal) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("POST", address("api/scans"));
    sending.responseType = "text";
    sending.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) told(event.loaded / event.total);
    });
    sending.addEventListener("load", async () => {
      if (sending.status >= 200 && sending.status < 300) resolve(JSON.parse(sending.responseText));
      else reject(new ApiError(sending.status, await sentence(sending.status, sending.responseText)));
    });
    sending.addEventListener("error", () => reject(new ApiError(0, GONE)));
    sending.addEventListener("abort", () => reject(new DOMException("cancelled", "AbortError")));
    signal?.addEventListener("abort", () => sending.abort());
    const form = new FormData();
    form.append("file", file);
    sending.send(form);
  });
}
