// Clients for a test: closed with it, quiet about the failures that the test makes.

import { Client } from "../../src/index.js";

/** A client that ends with the test. `client.errors` has what it reported. */
export function clientOf(t, server, options = {}) {
  const errors = [];
  const client = new Client(typeof server === "string" ? server : server.url, {
    reconnectMinMs: 20,
    reconnectMaxMs: 500,
    onError: (error) => errors.push(error),
    ...options,
  });
  client.errors = errors;
  t.after(() => client.close({ timeoutMs: 1_000 }).catch(() => {}));
  return client;
}
