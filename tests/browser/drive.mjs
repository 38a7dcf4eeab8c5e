// Drives Chromium for the tests: one JSON command a line on standard input, one JSON answer a line on standard output.
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const browser = await chromium.launch({
  executablePath: process.argv[2],
  args: ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"],
});
console.log(JSON.stringify({ answer: browser.version() }));
let context, page, requests, messages;

const commands = {
  async open({ url, width = 1280, height = 800, scheme = "light", webgl = true }) {
    await context?.close();
    requests = [];
    messages = [];
    context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: "reduce", serviceWorkers: "block" });
    page = await context.newPage();
    if (!webgl) await page.addInitScript(() => {
      const getContext = HTMLCanvasElement.prototype.getContext;
      HTMLCanvasElement.prototype.getContext = function (kind, ...rest) { return kind.startsWith("webgl") ? null : getContext.call(this, kind, ...rest); };
    });
    // blob: and data: are inside the page; anything else has left it
    page.on("request", (request) => { if (!/^(blob|data):/.test(request.url())) requests.push(request.url()); });
    page.on("console", (message) => { if (["error", "warning"].includes(message.type())) messages.push(message.text()); });
    page.on("pageerror", (error) => messages.push(String(error)));
    await page.goto(url, { timeout: 120_000 });  // beside other work, starting takes long
  },
  async wait({ selector, seconds = 60 }) { await page.waitForSelector(selector, { timeout: 1000 * seconds, state: "attached" }); },
  async key({ key }) { await page.keyboard.press(key); await settled(); },
  async click({ selector, position }) { await page.click(selector, { position }); await settled(); },
  async move({ x, y }) { await page.mouse.move(x, y); },
  async wheel({ by }) { await page.mouse.wheel(0, by); await settled(); },
  async drag({ path }) {  // of [x, y] on the screen, the button held
    await page.mouse.move(...path[0]);
    await page.mouse.down();
    for (const point of path.slice(1)) await page.mouse.move(...point);
    await page.mouse.up();
    await settled();
  },
  async choose({ selector, value }) { await page.selectOption(selector, value); await settled(); },
  async upload({ selector, path }) { await page.setInputFiles(selector, path); },
  async drop({ selector, name, base64 }) {  // a file from the desktop
    const data = await page.evaluateHandle(([name, base64]) => {
      const data = new DataTransfer();
      data.items.add(new File([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))], name));
      return data;
    }, [name, base64]);
    for (const event of ["dragenter", "dragover", "drop"]) await page.dispatchEvent(selector, event, { dataTransfer: data });
  },
  async look({ width, height, scheme }) { await page.setViewportSize({ width, height }); await page.emulateMedia({ colorScheme: scheme }); await settled(); },
  async text({ selector }) { return page.locator(selector).first().innerText(); },
  async fill({ selector, value }) { await page.fill(selector, String(value)); await settled(); },
  async evaluate({ code }) { return page.evaluate(code); },
  async shot({ path, selector }) { await settled(); await (selector ? page.locator(selector) : page).screenshot({ path, ...(selector ? {} : { fullPage: true }) }); },
  async seen() { return { requests, messages }; },
};

// Two frames: the first may still show what was there before.
const settled = () => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)))));

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...values } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ answer: (await commands[command](values)) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
await browser.close();
