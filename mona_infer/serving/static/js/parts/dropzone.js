// Where a scan is dropped or chosen.
import { el, icon } from "../core/dom.js";
import { bytes } from "../core/words.js";
import { say } from "./notice.js";

const ENDINGS = [".nii", ".nii.gz", ".nrrd", ".seg.nrrd", ".mha", ".dcm", ".zip"];

export function dropZone(info, onFile) {
  const limit = info.limits?.upload_bytes;
  const input = el("input", {
    type: "file",
    id: "scan-file",
    class: "unseen",
    accept: ".nii,.gz,.nrrd,.mha,.zip,.dcm",
  });
  const zone = el(
    "label",
    { class: "dropzone", for: "scan-file" },
    icon("upload"),
    el("strong", {}, "Drop a scan here, or choose a file"),
    el(
      "span",
      { class: "quiet" },
      "NIfTI, NRRD, MetaImage (.mha), or a .zip of one DICOM series",
      limit ? `, up to ${bytes(limit)}` : "",
    ),
    input,
  );
  const take = (files) => {
    if (files.length !== 1) {
      say("Drop one file at a time. Put the files of a DICOM series into a .zip first.", "bad");
    } else if (limit && files[0].size > limit) {
      say(`${files[0].name} has ${bytes(files[0].size)}; this server accepts up to ${bytes(limit)}.`, "bad");
    } else if (!ENDINGS.some((ending) => files[0].name.toLowerCase().endsWith(ending))) {
      say(
        `${files[0].name} is not a scan that mona reads. Use NIfTI, NRRD, .mha, or a .zip of one DICOM series.`,
        "bad",
      );
    } else {
      onFile(files[0]);
    }
  };
  input.addEventListener("change", () => input.files.length && take(input.files));
  zone.addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    take(event.dataTransfer.files);
  });
  return zone;
}
