// The support console in Chromium, over the real stack of APIPAY_DEV_DIR.
import { test, before, after } from "node:test";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { admin, hostile, merchant, receiver, stack, trouble, until } from "./stack.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const s = stack();
const pay = merchant(s);
const support = admin(s, "support");
let browser, flaky, steady, made;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
  flaky = await receiver();
  steady = await receiver();
  flaky.answer = { status: 500, body: hostile };
  for (const r of [flaky, steady]) r.endpoint = await pay("POST", "/v1/webhook-endpoints", { url: r.url, enabled_events: ["payment_intent.succeeded"] });
  // An event goes to endpoints that are not younger than it, in whole seconds.
  await new Promise((done) => setTimeout(done, 1100));
  for (let i = 0; i < 4; i++) await pay("POST", "/v1/payment-intents", { amount: 1000 + i, currency: "EUR", payment_method: "pm_card_visa", confirm: true });
  made = await trouble(s, flaky.url);
  await until(async () => (await failed()).length === 4, "four deliveries failed");
});

after(async () => {
  await browser?.close();
  await flaky?.close();
  await steady?.close();
});

const failed = async () =>
  (await support("GET", `/admin/v1/webhook-deliveries?endpoint=${flaky.endpoint.id}&status=FAILED&limit=100`)).body.data;

/** A page of somebody of that role who has signed in; what goes wrong in the browser fails the test. */
async function signedIn(role, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, timezoneId: "Europe/Berlin", ...options });
  const page = await context.newPage();
  page.problems = [];
  page.on("console", (m) => m.type() === "error" && !m.text().includes("the server responded with") && page.problems.push(m.text()));
  page.on("pageerror", (error) => page.problems.push(error.message));
  await page.goto(s.urls.admin_api + "/");
  await page.getByLabel("Staff token").fill(s.demo.tokens[role]);
  await page.getByRole("button", { name: "Sign in" }).press("Enter");
  await page.waitForURL("**/deliveries");
  return page;
}

/** The page is done: nothing in it failed, and nothing of a receiver's ran. */
async function done(page) {
  assert.equal(await page.evaluate(() => window.pwned), undefined, "a receiver's text ran");
  assert.deepEqual(page.problems, []);
  await page.context().close();
}

async function scan(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  assert.deepEqual(serious.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" | ")}`), [], name);
}

test("a delivery is found by its event's id, and its timeline tells everything", async () => {
  const page = await signedIn("viewer");
  const [delivery] = await failed();
  const began = Date.now();
  await page.getByLabel("Event", { exact: true }).fill(delivery.event_id);
  await page.getByLabel("Event", { exact: true }).press("Enter");
  await page.waitForURL(`**/deliveries?event=${delivery.event_id}`);
  await page.locator(`a[href="/deliveries/${delivery.id}"]`).click();
  await page.getByRole("heading", { name: "Timeline" }).waitFor();
  assert.ok(Date.now() - began < 5000, `found in ${Date.now() - began} ms`);

  const attempts = page.locator("article.entry");
  assert.equal(await attempts.count(), delivery.attempts.length);
  const first = attempts.last();
  for (const text of ["Attempt 1", "failed", "500", "scheduled", "127.0.0.1", "waiting"]) assert.match(await first.innerText(), new RegExp(text));
  assert.match(await first.locator("time").first().innerText(), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (CET|CEST|GMT\+\d)$/, "in the reader's zone, which is named");
  // As text, and not as what it says it is.
  assert.equal(await first.locator("pre").textContent(), hostile);
  assert.equal(await page.locator("pre img, pre script, pre a").count(), 0);

  await page.getByRole("searchbox").fill(delivery.event_id);
  await page.getByRole("searchbox").press("Enter");
  await page.waitForURL(`**/events/${delivery.event_id}`);
  assert.match(await page.locator("main").innerText(), /payment_intent\.succeeded/);
  await done(page);
});

test("the filters are in the address, and a list goes on where it ended", async () => {
  const page = await signedIn("viewer");
  await page.getByLabel("State").selectOption("FAILED");
  await page.getByLabel("Endpoint").fill(flaky.endpoint.id);
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL((url) => url.search === `?status=FAILED&endpoint=${flaky.endpoint.id}`);
  assert.equal(await page.locator("tbody tr").count(), 4);
  await page.reload();
  assert.equal(await page.getByLabel("State").inputValue(), "FAILED");
  await page.goto(s.urls.admin_api + "/deliveries?event=nonsense");
  assert.match(await page.getByRole("alert").innerText(), /evt_ id/);
  assert.equal(await page.getByLabel("Event", { exact: true }).inputValue(), "nonsense");
  await done(page);
});

test("a viewer has no buttons, and the server refuses what a viewer sends anyway", async () => {
  const page = await signedIn("viewer");
  const [delivery] = await failed();
  for (const path of [`/deliveries/${delivery.id}`, `/endpoints/${flaky.endpoint.id}`, "/recoveries", "/recoveries/new", "/outbox", "/quarantine", "/payments"]) {
    await page.goto(s.urls.admin_api + path);
    assert.equal(await page.locator("dialog, main form[method=post], [data-open]").count(), 0, path);
  }
  const csrf = await page.locator("input[name=csrf]").first().inputValue();
  const post = (form) => page.request.post(`${s.urls.admin_api}/deliveries/${delivery.id}/retry`, { form, maxRedirects: 0 });
  assert.equal((await post({ csrf })).status(), 403);
  assert.equal((await post({})).status(), 403, "without the page's token");
  const { body } = await support("GET", `/admin/v1/webhook-deliveries/${delivery.id}`);
  assert.equal(body.status, "FAILED");
  await done(page);
});

test("a retry is confirmed, sent once and seen to be delivered, by keyboard alone", async () => {
  const page = await signedIn("support");
  const [delivery] = await failed();
  flaky.answer = { status: 200, body: "ok" };
  const before = flaky.seen.filter((id) => id === delivery.event_id).length;
  await page.goto(`${s.urls.admin_api}/deliveries/${delivery.id}`);
  await page.getByRole("button", { name: "Send again…" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Send 1 delivery again?" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  await page.keyboard.press("Enter"); // the focus is back on what opened it
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Send 1 delivery");
  await page.keyboard.press("Enter");
  await page.getByText("Confirmed by the receiver").waitFor({ timeout: 15_000 });
  assert.equal(await page.locator("h1 .state").innerText(), "DELIVERED");
  const { body } = await support("GET", `/admin/v1/webhook-deliveries/${delivery.id}`);
  assert.equal(body.attempts.at(-1).trigger, "manual");
  assert.equal(body.attempts.at(-1).number, delivery.attempt_count + 1);
  assert.equal(flaky.seen.filter((id) => id === delivery.event_id).length, before + 1);
  await done(page);
});

test("a filtered set is counted, confirmed and recovered", async () => {
  const page = await signedIn("support");
  await page.goto(`${s.urls.admin_api}/deliveries?endpoint=${flaky.endpoint.id}&status=FAILED`);
  const rows = await page.locator("tbody tr").count();
  assert.equal(rows, 3, "one of the four was retried");
  await page.getByRole("link", { name: "Recover many…" }).click();
  assert.equal(await page.locator("#count .big").innerText(), "3");
  await page.getByRole("button", { name: "Send 3 deliveries again…" }).click();
  assert.match(await page.getByRole("dialog").innerText(), /Send 3 deliveries again\?[^]*FAILED[^]*we_/);
  await page.getByRole("button", { name: "Send 3 deliveries", exact: true }).click();
  await page.waitForURL("**/recoveries/rec_*");
  await page.locator("h1 .state", { hasText: "done" }).waitFor({ timeout: 20_000 });
  assert.match(await page.locator(".big").innerText(), /^3 of 3$/);
  await until(async () => (await failed()).length === 0, "nothing is failed any more");
  await page.goto(`${s.urls.admin_api}/deliveries?endpoint=${flaky.endpoint.id}&status=DELIVERED`);
  await until(async () => (await page.reload(), (await page.locator("tbody tr").count()) === 4), "all four are delivered");
  await done(page);
});

test("what operators decide is confirmed and lands in the audit log", async () => {
  const page = await signedIn("admin");
  await page.goto(s.urls.admin_api + "/outbox");
  await page.getByRole("button", { name: "Discard…" }).first().click();
  await page.getByRole("dialog").getByLabel("Reason").fill("a test's");
  await page.getByRole("button", { name: "Discard 1 event" }).click();
  await page.getByText("The event was discarded").waitFor();
  await page.goto(s.urls.admin_api + "/quarantine");
  await page.getByRole("button", { name: "Replay…" }).first().click();
  await page.getByRole("button", { name: "Replay 1 record" }).click();
  await page.getByText("The dispatcher will try the record again").waitFor();
  await page.goto(s.urls.admin_api + "/payments");
  await page.locator("tr", { has: page.locator(`text=EUR 1,299.00`) }).first().getByRole("button", { name: "Set…" }).click();
  await page.getByLabel("declined: the gateway refused it").check();
  await page.getByRole("dialog").getByLabel("Reason").fill("the bank said so");
  await page.getByRole("button", { name: "Set the outcome" }).click();
  await page.getByText("The outcome was set").waitFor();
  await page.goto(s.urls.admin_api + "/audit");
  const text = await page.locator("tbody").innerText();
  for (const action of ["outbox_event.discard", "quarantined_record.replay", "payment_attempt.resolve", "recovery.create", "webhook_delivery.retry"]) {
    assert.ok(text.includes(action), action);
  }
  assert.ok(text.includes("refused"), "the viewer who tried is told too");
  await done(page);
});

test("every page is accessible and fits a phone, in light and dark", async () => {
  const { body: deliveries } = await support("GET", `/admin/v1/webhook-deliveries?endpoint=${flaky.endpoint.id}&limit=1`);
  const { body: recoveries } = await support("GET", "/admin/v1/recoveries?limit=1");
  const { body: intents } = await support("GET", "/admin/v1/payment-intents?limit=1");
  await trouble(s, steady.url);
  const [delivery] = deliveries.data;
  const paths = ["/deliveries", "/deliveries?event=nonsense", "/deliveries?endpoint=we_01m8pdms8qe009np27v5dtzqn9", `/deliveries/${delivery.id}`, `/events/${delivery.event_id}`,
    "/endpoints", `/endpoints/${flaky.endpoint.id}`, "/recoveries", "/recoveries/new", `/recoveries/${recoveries.data[0].id}`, "/outbox", "/quarantine",
    "/payments", "/payments?reference=none", `/payments/${intents.data[0].id}`, "/audit", "/docs", "/nowhere"];
  for (const [width, colorScheme] of [[1440, "light"], [390, "dark"]]) {
    const page = await signedIn("admin", { viewport: { width, height: 844 }, colorScheme });
    for (const path of paths) {
      await page.goto(s.urls.admin_api + path);
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(over <= 0, `${path} is ${over} px too wide at ${width}`);
      await scan(page, `${path} at ${width}`);
    }
    await page.goto(`${s.urls.admin_api}/endpoints/${flaky.endpoint.id}`);
    assert.equal(await page.locator("canvas").count(), 3, "three charts are drawn");
    await page.goto(s.urls.admin_api + "/deliveries");
    if (width < 860) await page.getByText("Menu").click();
    await page.getByRole("button", { name: "Sign out" }).click();
    await page.waitForURL("**/sign-in");
    await scan(page, "/sign-in");
    await page.goto(s.urls.admin_api + "/deliveries");
    await page.waitForURL("**/sign-in?next=%2Fdeliveries");
    await done(page);
  }
});
