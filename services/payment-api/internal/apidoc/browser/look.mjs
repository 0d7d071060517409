// Opens the public pages in Chromium at the width of a desktop and of a phone, and fails on what a reader would notice: a
// request to another host, a message in the console, an operation that does not show, a page that scrolls sideways.
//
//   node look.mjs <base URL> <folder for the screenshots>
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { chromium } from 'playwright-core';

const [base, folder] = process.argv.slice(2);
const origin = new URL(base).origin;
const widths = { desktop: { width: 1440, height: 900 }, phone: { width: 390, height: 844 } };
const faults = [];

await mkdir(folder, { recursive: true });
const document = await (await fetch(base + '/openapi.json')).json();
const operations = Object.values(document.paths).flatMap((item) => Object.values(item));
if (operations.length === 0) throw new Error('the document has no operations');

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: [
    ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
    '--disable-background-networking',
    '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
  ],
});
try {
  for (const [device, viewport] of Object.entries(widths)) {
    await look(device, viewport, 'docs', '/docs', reference);
    await look(device, viewport, 'errors', '/errors', text);
    await look(device, viewport, 'error', '/errors/card_declined', text);
  }
} finally {
  await browser.close();
}
for (const fault of faults) console.error(fault);
process.exit(faults.length > 0 ? 1 : 0);

async function look(device, viewport, name, url, check) {
  const fail = (message) => faults.push(`${device} ${url}: ${message}`);
  const page = await browser.newPage({ viewport, isMobile: device === 'phone', hasTouch: device === 'phone' });
  page.setDefaultTimeout(15_000);
  page.on('request', (request) => {
    const asked = new URL(request.url());
    if (asked.origin !== origin && !['data:', 'blob:'].includes(asked.protocol)) fail(`asked ${asked}`);
  });
  page.on('requestfailed', (request) => fail(`${request.url()} failed: ${request.failure()?.errorText}`));
  page.on('response', (response) => response.status() >= 400 && fail(`${response.url()} answered ${response.status()}`));
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && fail(`console: ${message.text()}`));
  page.on('pageerror', (error) => fail(`threw ${error}`));
  try {
    await page.goto(base + url, { waitUntil: 'networkidle' });
    const shot = (part) => page.screenshot({ path: path.join(folder, `${device}-${name}${part}.png`) });
    await check(page, { fail, shot, device });
    const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    if (content > window || window > viewport.width) fail(`is ${content} px wide in a window of ${viewport.width}`);
  } catch (error) {
    fail(error.message);
  } finally {
    await page.close();
  }
}

async function reference(page, { fail, shot, device }) {
  const create = '[id^="tag/"][id$="operation/createPaymentIntent"]';
  await page.waitForSelector(create);
  await shot('');
  for (const { operationId, summary } of operations) {
    const section = page.locator(`[id^="tag/"][id$="operation/${operationId}"]`);
    if (!(await section.isVisible())) fail(`${operationId} does not show`);
    else if (!(await section.innerText()).includes(summary)) fail(`${operationId} shows without its summary`);
  }
  await page.locator(create).evaluate((section) => section.scrollIntoView());
  await shot('-operation');
  if (device !== 'desktop') return;
  // A reader opens an answer and sees its members.
  await page.locator(`${create} button`, { hasText: '201' }).click();
  await page.locator(`${create} td`, { hasText: 'amount_refunded' }).first().waitFor({ state: 'visible' });
  await shot('-answer');
}

async function text(page, { fail, shot }) {
  if ((await page.locator('main').innerText()).length < 80) fail('has no text');
  const width = await page.evaluate(() => getComputedStyle(document.body).maxWidth);
  if (width === 'none') fail('has no style');
  await shot('');
}
