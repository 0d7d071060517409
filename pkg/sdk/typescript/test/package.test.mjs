// The package as a program sees it: both module formats, their types, and what is printed.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const require = createRequire(import.meta.url);

test("CommonJS and ES modules have the same exports", async () => {
  const [esm, cjs] = [await import("@apipay/sdk"), require("@apipay/sdk")];
  assert.deepEqual(Object.keys(esm).filter((name) => name !== "default").sort(), Object.keys(cjs).sort());
  assert.equal(typeof require("@apipay/sdk/testing").sign, "function");
  assert.equal(typeof (await import("@apipay/sdk/testing")).sign, "function");
});

test("the types serve both formats", (t) => {
  const dir = mkdtempSync(join(root, "test", "types-"));
  t.after(() => rmSync(dir, { recursive: true }));
  mkdirSync(join(dir, "node_modules", "@apipay"), { recursive: true });
  symlinkSync(root, join(dir, "node_modules", "@apipay", "sdk"));
  const program = `
    import { ApiPay, ApiPayError, WebhookVerifier, refundOf } from "@apipay/sdk";
    import { sign } from "@apipay/sdk/testing";
    export async function pay(): Promise<number> {
      const client = new ApiPay("apk_test_x", { maxRetries: 1 });
      const intent = await client.paymentIntents.create({ amount: 1, currency: "EUR" }, { idempotencyKey: "k" });
      for await (const refund of client.refunds.all(intent.id)) if (refund.status === "pending") return refund.amount;
      const event = new WebhookVerifier(["a", "b"]).constructEvent(Buffer.from("{}"), sign("{}", "a"));
      return refundOf(event).amount;
    }
    export const known = (e: unknown): boolean => e instanceof ApiPayError && e.code === "card_declined";
    // @ts-expect-error a misspelt parameter is an error
    export const wrong = (client: ApiPay) => client.paymentIntents.create({ amount: 1, curency: "EUR" });
  `;
  for (const extension of ["mts", "cts"]) writeFileSync(join(dir, `program.${extension}`), program);
  const config = { compilerOptions: { module: "NodeNext", strict: true, noEmit: true, types: ["node"], typeRoots: [join(root, "node_modules/@types")] } };
  writeFileSync(join(dir, "tsconfig.json"), JSON.stringify(config));
  const manifest = require.resolve("typescript/package.json");
  execFileSync(process.execPath, [join(dirname(manifest), require(manifest).bin.tsc), "-p", dir], { stdio: ["ignore", 2, 2] });
});

test("a client does not print its key", async () => {
  const { ApiPay } = await import("@apipay/sdk");
  const client = new ApiPay("apk_test_KEYMARKER");
  const options = { showHidden: true, depth: Infinity, customInspect: false };
  for (const text of [inspect(client), inspect(client, options), JSON.stringify(client), `${client}`, inspect({ ...client }, options)]) {
    assert.doesNotMatch(text, /KEYMARKER/);
  }
});

test("what a client cannot be made with", async () => {
  const { ApiPay, ApiPayError } = await import("@apipay/sdk");
  const refused = [
    [""], ["a b"], ["k\n"], ["k", { baseURL: "ftp://x" }], ["k", { baseURL: "https://u:p@h" }], ["k", { baseURL: "https://h/?q" }],
    ["k", { baseURL: "h" }], ["k", { timeoutMs: 0 }], ["k", { timeoutMs: 2 ** 31 }], ["k", { timeoutMs: NaN }], ["k", { maxRetries: -1 }],
    ["k", { maxRetries: 1.5 }],
  ];
  for (const args of refused) assert.throws(() => new ApiPay(...args), (e) => e instanceof ApiPayError && e.kind === "argument", inspect(args));
});
