import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startServer } from "./support/server.js";

const run = promisify(execFile);
const text = readFileSync(new URL("../../../docs/clients.md", import.meta.url), "utf8");
const blocks = [...text.matchAll(/^```js run\n([\s\S]*?)^```/gm)].map((match) => match[1]);
/** What the blocks print, in part. */
const OUTPUT = [
  /has offset 0\ncharge order 7\n/,
  /ship order 3 attempt 1\n$/,
  /^0 \{ sku: 'a', left: 3 \}\n[\s\S]*\na 3\n$/,
  /pay 5\n/,
];

test("the code in docs/clients.md runs", async (t) => {
  assert.equal(blocks.length, OUTPUT.length);
  const server = await startServer(t);
  for (const [at, block] of blocks.entries()) {
    const code = block.replaceAll("ws://127.0.0.1:8090", server.url);
    // The package may import itself by its name.
    const { stdout, stderr } = await run(process.execPath, ["--input-type=module", "-e", code], {
      cwd: fileURLToPath(new URL("..", import.meta.url)),
      timeout: 20_000,
    });
    assert.equal(stderr, "");
    assert.match(stdout, OUTPUT[at]);
  }
  assert.equal((await server.json("/replay?topic=receipts.sent")).count, 1);
});
