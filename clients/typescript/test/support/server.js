// A real server for a test: started, killed, started again on the same port.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const BIN = process.env.PROMETHEAN_BIN;

/** Runs a program with a file system of its own in `data`. */
const ON_OWN_DISK = ["-Urm", "sh", "-c", 'mount -t tmpfs -o size=1g tmpfs data && exec "$0" "$@"'];

export class Server {
  /**
   * With `hasOwnDisk`, the data is on a file system of its own, whose size the test can change.
   * @param {{args?: string[], config?: string, isDurable?: boolean, hasOwnDisk?: boolean}} [options]
   */
  constructor({ args = [], config, isDurable = false, hasOwnDisk = false } = {}) {
    if (!BIN) throw new Error("set PROMETHEAN_BIN to the path of the binary `promethean`");
    this.directory = mkdtempSync(join(tmpdir(), "promethean-test-"));
    this.args = [...args];
    if (config !== undefined) this.configure(config);
    if (config !== undefined) this.args.push("--config", join(this.directory, "promethean.toml"));
    this.hasOwnDisk = hasOwnDisk;
    if (hasOwnDisk) mkdirSync(join(this.directory, "data"));
    this.args.push(...(isDurable || hasOwnDisk ? ["--data", join(this.directory, "data")] : ["--store", "memory"]));
    this.port = 0;
    this.log = "";
  }

  /** Writes the configuration. */
  configure(config) {
    writeFileSync(join(this.directory, "promethean.toml"), config);
  }

  get url() {
    return `ws://127.0.0.1:${this.port}`;
  }

  get http() {
    return `http://127.0.0.1:${this.port}`;
  }

  async start() {
    if (this.port === 0) this.port = await freePort();
    const env = { PATH: process.env.PATH };
    const command = [BIN, "serve", "--listen", `127.0.0.1:${this.port}`, ...this.args];
    if (this.hasOwnDisk) command.unshift("unshare", ...ON_OWN_DISK);
    const child = spawn(command[0], command.slice(1), { env, cwd: this.directory });
    this.child = child;
    this.exit = new Promise((resolve) => child.once("exit", resolve));
    child.stderr.on("data", (data) => (this.log = (this.log + data).slice(-10_000)));
    await new Promise((resolve, reject) => {
      createInterface({ input: child.stdout }).on("line", (line) => line.includes("listens on") && resolve());
      createInterface({ input: child.stderr }).on("line", (line) => line.includes("listens on") && resolve());
      child.once("exit", (code) => reject(new Error(`the server ended with ${code}: ${this.log}`)));
    });
    return this;
  }

  /** Changes the size of the file system of `hasOwnDisk`, for example to `100m`. */
  resizeDisk(size) {
    const inside = ["--preserve-credentials", "-U", "-m", "-t", String(this.child.pid)];
    execFileSync("nsenter", [...inside, "mount", "-o", `remount,size=${size}`, join(this.directory, "data")]);
  }

  /** Ends the server at once, as a crash does. */
  async kill() {
    this.child.kill("SIGKILL");
    await this.exit;
  }

  signal(name) {
    this.child.kill(name);
  }

  async stop() {
    if (this.child?.exitCode === null && this.child.signalCode === null) {
      this.child.kill("SIGTERM");
      const timer = setTimeout(() => this.child.kill("SIGKILL"), 5_000);
      await this.exit;
      clearTimeout(timer);
    }
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** Sends a request and returns the JSON of its answer. */
  async json(path, options) {
    const response = await fetch(this.http + path, options);
    return response.json();
  }
}

/** Starts a server that ends with the test. */
export async function startServer(t, options) {
  const server = await new Server(options).start();
  t.after(() => server.stop());
  return server;
}

/** A port on which no server listens. */
export function freePort() {
  return new Promise((resolve) => {
    const listener = createServer().listen(0, "127.0.0.1", () => {
      const { port } = listener.address();
      listener.close(() => resolve(port));
    });
  });
}
