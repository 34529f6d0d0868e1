import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { startServer } from "./support/server.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const BYTES_MAX = 12 * 1024;
const run = promisify(execFile);

async function bundle(contents) {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: ROOT },
    bundle: true,
    minify: true,
    format: "esm",
    platform: "browser",
    write: false,
  });
  return outputFiles[0].contents;
}

test("publish and subscribe are less than 12 KB, gzipped", async (t) => {
  const bytes = gzipSync(await bundle('export { Client } from "./src/index.js"')).length;
  t.diagnostic(
    `${bytes} bytes for publish and subscribe, ${gzipSync(await bundle('export * from "./src/index.js"')).length} for everything`,
  );
  assert.ok(bytes < BYTES_MAX, `${bytes} bytes`);
});

test("what is not imported is not bundled", async () => {
  const text = Buffer.from(await bundle('export { Client } from "./src/index.js"')).toString();
  for (const other of ["dedupe", "x-snapshot", "/redrive", "if-none-match"])
    assert.equal(text.includes(other), false, other);
});

test("the package installs and runs in a clean folder", { timeout: 120_000 }, async (t) => {
  const server = await startServer(t);
  const folder = mkdtempSync(join(tmpdir(), "promethean-pack-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const quiet = ["--no-audit", "--no-fund", "--silent"];
  await run("npm", ["pack", "--pack-destination", folder, "--silent"], { cwd: ROOT });
  const archive = readdirSync(folder).find((name) => name.endsWith(".tgz"));
  writeFileSync(join(folder, "package.json"), '{"private":true,"type":"module"}');
  // Node 20 has no WebSocket of its own.
  const needed = globalThis.WebSocket
    ? []
    : [`ws@${JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")).devDependencies.ws}`];
  await run("npm", ["install", ...quiet, join(folder, archive), ...needed], { cwd: folder });
  const installed = join(folder, "node_modules/@promethean/client");
  for (const file of ["src/index.js", "types/index.d.ts", "LICENSE", "README.md", "package.json"])
    assert.ok(readFileSync(join(installed, file)).length > 0);
  assert.equal(readdirSync(installed).includes("test"), false);
  assert.deepEqual(
    JSON.parse(readFileSync(join(installed, "package.json"), "utf8")).dependencies ?? {},
    {},
    "no dependencies",
  );
  writeFileSync(
    join(folder, "main.js"),
    `
    import { Client } from "@promethean/client";
    const client = new Client(process.argv[2]);
    await client.publish("t", "hello");
    for await (const lease of client.leases("t", "g", { from: "earliest" })) {
      console.log(lease.event.payload);
      await lease.ack();
      break;
    }
    await client.close();
  `,
  );
  const { stdout } = await run(process.execPath, ["main.js", server.url], { cwd: folder });
  assert.equal(stdout, "hello\n");
  // The types are found too.
  writeFileSync(
    join(folder, "main.ts"),
    `
    import { Client, type Published } from "@promethean/client";
    export const published: Promise<Published> = new Client("ws://x").publish("t", 1);
  `,
  );
  const flags = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom"];
  await run(process.execPath, [join(ROOT, "node_modules/typescript/bin/tsc"), ...flags, "main.ts"], { cwd: folder });
});

test("a Node without WebSocket and without the package ws is told what to install", async (t) => {
  if (globalThis.WebSocket) return t.diagnostic("this Node has a WebSocket");
  const folder = mkdtempSync(join(tmpdir(), "promethean-bare-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  await run("cp", ["-r", join(ROOT, "src"), join(ROOT, "package.json"), folder]);
  const code =
    'import { Client } from "./src/index.js"; await new Client("ws://127.0.0.1:9").connect().catch((error) => console.log(error.code, error.message))';
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", code], { cwd: folder });
  assert.match(stdout, /^no_websocket .*npm install ws/);
});
