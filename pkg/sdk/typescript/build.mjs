// Builds dist/esm and dist/cjs from src. The format of a file under NodeNext is decided by the package.json above it, so
// the CommonJS build is of a copy of src that has one of its own.
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);
const manifest = require.resolve("typescript/package.json");
const tsc = join(dirname(manifest), JSON.parse(readFileSync(manifest, "utf8")).bin.tsc);
const compile = (...args) => execFileSync(process.execPath, [tsc, ...args], { cwd: root, stdio: ["ignore", 2, 2] });

rmSync(join(root, "dist"), { recursive: true, force: true });
compile("-p", "tsconfig.json");
const copy = join(root, "dist", "cjs-src");
cpSync(join(root, "src"), copy, { recursive: true });
const commonJS = JSON.stringify({ type: "commonjs" });
writeFileSync(join(copy, "package.json"), commonJS);
const config = { extends: "../../tsconfig.json", compilerOptions: { rootDir: ".", outDir: "../cjs", verbatimModuleSyntax: false }, include: ["."] };
writeFileSync(join(copy, "tsconfig.json"), JSON.stringify(config));
compile("-p", join(copy, "tsconfig.json"));
mkdirSync(join(root, "dist", "cjs"), { recursive: true });
writeFileSync(join(root, "dist", "cjs", "package.json"), commonJS);
rmSync(copy, { recursive: true });
