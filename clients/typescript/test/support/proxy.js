// A proxy between client and server that misbehaves as it is told.

import { connect, createServer } from "node:net";

export class Proxy {
  /** @param {number} port The port of the server. */
  constructor(port) {
    this.target = port;
    this.pairs = new Set();
    /** Added to the way of every byte. */
    this.delayMs = 0;
    /** What arrived while nothing is passed on; as with TCP, it arrives late and is not lost. */
    this.held = undefined;
    this.isRefusing = false;
    /** Whether new connections are lost. */
    this.isLosing = false;
    /** Connections of the server whose client is gone, of which the server is not told. */
    this.orphans = new Set();
    this.accepted = 0;
    /** Bytes that were lost. */
    this.lost = 0;
  }

  async start() {
    this.listener = createServer({ allowHalfOpen: true }, (client) => this.accept(client));
    await new Promise((resolve) => this.listener.listen(0, "127.0.0.1", resolve));
    this.url = `ws://127.0.0.1:${this.listener.address().port}`;
    return this;
  }

  accept(client) {
    this.accepted++;
    if (this.isRefusing) return void client.destroy();
    const server = connect({ port: this.target, host: "127.0.0.1", allowHalfOpen: true });
    const pair = { client, server, isDetached: false, isLost: this.isLosing };
    this.pairs.add(pair);
    const drop = () => {
      if (pair.isDetached) return;
      this.pairs.delete(pair);
      client.destroy();
      if (pair.isLost) this.orphans.add(server);
      else server.destroy();
    };
    for (const [from, to] of [
      [client, server],
      [server, client],
    ]) {
      from.on("data", (data) => {
        if (pair.isLost) this.lost += data.length;
        else this.later(() => to.destroyed || to.write(data));
      });
      from.on("end", () => pair.isLost || this.later(() => to.end()));
      from.on("error", () => this.later(drop));
      from.on("close", () => this.later(drop));
    }
  }

  later(call) {
    if (this.held) this.held.push(call);
    else if (this.delayMs === 0) call();
    else setTimeout(call, this.delayMs);
  }

  /** Keeps connections open and passes nothing on, until it is turned off. */
  blackHole(isOn) {
    const held = this.held ?? [];
    this.held = isOn ? [] : undefined;
    for (const call of held) call();
  }

  /**
   * While this is on, bytes are lost in both directions. Connections that met it stay open and pass nothing on for ever,
   * as those over a failed router: neither side hears of the end of the other.
   */
  loseBytes(isOn) {
    this.isLosing = isOn;
    if (isOn) for (const pair of this.pairs) pair.isLost = true;
  }

  /** Cuts all connections with a reset. */
  cut() {
    for (const { client, server } of this.pairs) {
      client.resetAndDestroy();
      server.destroy();
    }
    this.pairs.clear();
  }

  /** Ends only the direction from the server to the client. */
  halfClose() {
    for (const { client } of this.pairs) client.end();
  }

  /**
   * Cuts the client off while its last bytes are on their way: they reach the server after the client is back on another
   * connection.
   */
  overtake() {
    for (const pair of this.pairs) {
      pair.isDetached = true;
      pair.client.destroy();
      setTimeout(() => pair.server.destroy(), 2 * this.delayMs);
    }
    this.pairs.clear();
  }

  async stop() {
    this.cut();
    for (const server of this.orphans) server.destroy();
    await new Promise((resolve) => this.listener.close(resolve));
  }
}

/** Starts a proxy that ends with the test. */
export async function startProxy(t, server) {
  const proxy = await new Proxy(server.port).start();
  t.after(() => proxy.stop());
  return proxy;
}
