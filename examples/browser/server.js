// Serves a page that shows `process.state` live. Start a bus, then this, then open http://127.0.0.1:8080:
//
//   promethean dev
//   node examples/browser/server.js
//
// PROMETHEAN_URL is the address of the bus (http://127.0.0.1:8090), PORT the port of the page (8080). The page reaches
// the bus through this server, under /bus: so both have one origin, and a token stays here (PROMETHEAN_TOKEN).

import { readFile } from "node:fs/promises";
import { createServer, request } from "node:http";
import { connect } from "node:net";

const bus = new URL(process.env.PROMETHEAN_URL ?? "http://127.0.0.1:8090");
const token = process.env.PROMETHEAN_TOKEN;
const PAGE = new URL("./", import.meta.url);
const CLIENT = new URL("../../clients/typescript/src/", import.meta.url);
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8" };

/** The file behind a path: the page itself, or a module of the client. Nothing else is served. */
function fileOf(path) {
  const name = /^\/(?:promethean\/)?([a-z0-9_]+\.(?:html|js))$/.exec(path === "/" ? "/index.html" : path)?.[1];
  return name && new URL(name, path.startsWith("/promethean/") ? CLIENT : PAGE);
}

/** What the bus gets of a request: its own path and host, and the token. */
function forBus({ url, headers }) {
  const { authorization, ...rest } = headers;
  return {
    path: url.slice("/bus".length) || "/",
    headers: { ...rest, host: bus.host, ...(token && { authorization: `Bearer ${token}` }) },
  };
}

const server = createServer(async (asked, answer) => {
  const { pathname } = new URL(asked.url, "http://page");
  if (pathname.startsWith("/bus/") && asked.method === "GET") {
    const { path, headers } = forBus(asked);
    const passed = request({ host: bus.hostname, port: bus.port || 80, path, headers }, (got) => {
      answer.writeHead(got.statusCode, got.headers);
      got.pipe(answer);
    });
    passed.on("error", () => (answer.headersSent ? answer.destroy() : answer.writeHead(502).end()));
    answer.on("close", () => passed.destroy());
    passed.end();
    return;
  }
  const file = fileOf(pathname);
  const content = file && (await readFile(file).catch(() => undefined));
  if (!content) return void answer.writeHead(404).end("not found");
  answer
    .writeHead(200, { "content-type": TYPES[file.pathname.split(".").pop()], "cache-control": "no-cache" })
    .end(content);
});

// The WebSocket of the page.
server.on("upgrade", (asked, page, head) => {
  const { path, headers } = forBus(asked);
  const socket = connect(Number(bus.port || 80), bus.hostname, () => {
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
    socket.write(`GET ${path} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`);
    socket.write(head);
    page.pipe(socket).pipe(page);
  });
  socket.on("error", () => page.destroy());
  page.on("error", () => socket.destroy());
  page.on("close", () => socket.destroy());
});

server.listen(Number(process.env.PORT ?? 8080), "127.0.0.1", () => {
  console.log(`open http://127.0.0.1:${server.address().port} for the processes of ${bus.origin}`);
});
