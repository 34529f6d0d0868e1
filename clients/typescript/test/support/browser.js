// A real Chromium with pages that load the client as it is.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import puppeteer from "puppeteer-core";

const SOURCE = new URL("../../src/", import.meta.url);
/** Puppeteer turns the throttling of hidden pages off; these tests want it. */
const UNWANTED = [
  "--disable-background-timer-throttling",
  "--disable-backgrounding-occluded-windows",
  "--disable-renderer-backgrounding",
];
/** Timers of a page that is hidden for 2 s run once a minute; Chromium's own grace is 5 minutes. */
const THROTTLE = "--enable-features=IntensiveWakeUpThrottling:grace_period_seconds/2";

function chromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  return execFileSync("sh", ["-c", "command -v chromium || command -v chromium-browser || command -v google-chrome"])
    .toString()
    .trim();
}

/** Starts a browser that ends with the tests. `other.test` is a name of this machine. */
export async function startBrowser() {
  return puppeteer.launch({
    executablePath: chromium(),
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-dev-shm-usage",
      "--host-resolver-rules=MAP other.test 127.0.0.1",
      THROTTLE,
    ],
    ignoreDefaultArgs: UNWANTED,
  });
}

/** Serves an empty page, and the client's modules under `/src/`. */
export async function startPages() {
  const listener = createServer((request, response) => {
    const path = new URL(request.url, "http://x").pathname;
    if (!path.startsWith("/src/"))
      return void response.setHeader("content-type", "text/html").end("<!doctype html><title>test</title>");
    response.setHeader("content-type", "text/javascript").end(readFileSync(new URL(path.slice(5), SOURCE)));
  });
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return { port: listener.address().port, stop: () => listener.close() };
}
