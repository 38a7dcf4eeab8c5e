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
    await page.goto(url);
  },
  async wait({ selector, seconds = 60 }) { await page.waitForSelector(selector, { timeout: 1000 * seconds, state: "attached" }); },
  async key({ key }) { await page.keyboard.press(key); await settled(); },
  async click({ selector, position }) { await page.click(selector, { position }); await settled(); },
  async move({ x, y }) { await page.mouse.move(x, y); },
  async wheel({ by }) { await page.mouse.wheel(0, by); await settled(); },
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
