// The viewer of a page: NiiVue where the browser can run it, else plain 2-D slices, behind one interface:
//   show(buffer)                 an uncompressed NIfTI file
//   setFrame(n)                  of a cine
//   setMask(ids)                 class numbers of the frame in file order, or null
//   mask()                       what is shown or drawn, in file order
//   setOpacity(0..1)  setHidden(numbers)  setView("slices" | "planes" | "3d")  setWindow(low, high)
//   slice, slices, goTo(n)       along the axis the scan is sliced on
//   canDraw, setTool(tool, number, size)     tool: look, pen, fill, erase or piece
//   on("slice" | "stroke" | "window", listener)    close()
import { PlainViewer } from "./plain.js";
import { NiivueViewer } from "./niivue.js";

const LIBRARY = new URL("../../vendor/niivue.js", import.meta.url);
let loading = null;

/** NiiVue's module, or null where the server does not have it or the browser lacks WebGL 2. */
async function niivue() {
  if (new URLSearchParams(location.search).get("viewer") === "plain") return null;
  if (!document.createElement("canvas").getContext("webgl2")) return null;
  loading ??= new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = LIBRARY.href;
    script.addEventListener("load", () => resolve(window.niivue ?? null));
    script.addEventListener("error", () => resolve(null));
    document.head.append(script);
  });
  return loading;
}

/** A viewer inside `stage`; `colours` holds [r, g, b] for each class number, the background first. */
export async function createViewer(stage, colours) {
  const library = await niivue();
  return library ? new NiivueViewer(library, stage, colours) : new PlainViewer(stage, colours);
}
