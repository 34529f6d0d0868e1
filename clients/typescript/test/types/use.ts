// Uses the types of the client: the compiler must accept this, and refuse what is marked.

import { Admin, Client, EventClient, PromClient, PrometheanError, Reader, State, exactlyOnce, transform, warmUp } from "@promethean/client";
import type { DedupeStore, Lease, Published, SubscribeOptions } from "@promethean/client";
import type { HeartbeatReceived, Payloads } from "../../../../fixtures/schema/generate/golden/examples.js";
import { topics } from "../../../../fixtures/schema/generate/golden/examples.js";

const heartbeat: HeartbeatReceived = { pid: 7, name: "n", host: "h", cpu_pct: 1, mem_mb: 2 };

export async function untyped(signal: AbortSignal): Promise<number> {
  const client = new Client("ws://127.0.0.1:8090", "token");
  const published: Published = await client.publish("any.topic", { anything: [1, null] }, { key: "k", signal });
  const options: SubscribeOptions = { from: "earliest", concurrency: 4, onRebalance: ({ assigned }) => assigned.length };
  await client.subscribe("any.*", "group", async (event, lease) => {
    await lease.extend(5_000);
    return event.payload.anything;
  }, options);
  for await (const lease of client.leases("a", "g")) await lease.ack();
  await using later = client;
  await later.room();
  // @ts-expect-error no such option
  await client.publish("a", 1, { colour: "red" });
  // @ts-expect-error no such position
  client.leases("a", "g", { from: "middle" });
  return published.offset;
}

export async function byTopic(client: Client): Promise<void> {
  const topic = client.topic<HeartbeatReceived>("heartbeat.received");
  await topic.publish(heartbeat);
  await topic.subscribe("g", (event) => event.payload.cpu_pct.toFixed());
  for await (const lease of topic.leases("g")) {
    const pid: number = lease.event.payload.pid;
    await lease.nack({ delayMs: pid });
  }
  // @ts-expect-error a property is missing
  await topic.publish({ pid: 7 });
}

export async function generated(client: Client<Payloads>): Promise<void> {
  await client.publish("heartbeat.received", heartbeat);
  await client.publish(topics.heartbeatReceived, heartbeat);
  await client.subscribe("process.state", "page", (event) => {
    const status: "alive" | "stale" = event.payload.status;
    return status;
  });
  await client.topic("process.state").subscribe("g", ({ payload }) => payload.processId.length);
  // @ts-expect-error no such topic
  await client.publish("no.such", {});
  // @ts-expect-error a property is missing
  await client.publish("heartbeat.received", { pid: 7 });
}

/** The calls of the first services, with the type of the payload. */
export async function small(client: PromClient): Promise<string> {
  await client.connect();
  const ok = await client.publish<HeartbeatReceived>("heartbeat.received", heartbeat, { key: "k" });
  await client.subscribe<HeartbeatReceived>(
    "heartbeat.received",
    "ops",
    async (event, ctx) => {
      const pid: number = event.payload.pid + ctx.attempt;
      client.modAck("heartbeat.received", "ops", event.id, pid);
    },
    { from: "earliest", maxInFlight: 10 },
  );
  const first = new EventClient("ws://127.0.0.1:8090", "token");
  await first.subscribe<{ n: number }>("t", "g", (event) => void event.payload.n.toFixed());
  await first.subscribe("t", "g", (event) => void event.payload.anything);
  // @ts-expect-error a property is missing
  await client.publish<HeartbeatReceived>("heartbeat.received", { pid: 7 });
  // @ts-expect-error no such property
  await first.subscribe<HeartbeatReceived>("t", "g", (event) => void event.payload.colour);
  await client.unsubscribe("heartbeat.received", "ops");
  await client.close();
  return ok.op;
}

export async function administration(admin: Admin, state: State): Promise<string[]> {
  const { status, writable } = await admin.health();
  const { projectors } = await admin.projectors();
  await admin.rebuildProjector(projectors[0]!.name, { acceptLoss: true });
  const names: string[] = (await state.collections()).map(({ name }) => name);
  for await (const { topic, end } of admin.topics()) names.push(`${topic} ${end.toFixed()}`);
  for await (const { group, lag } of admin.cursors("t")) names.push(`${group} ${lag.toFixed()}`);
  const { verdict } = await admin.checkSchema("t", { type: "object" });
  // @ts-expect-error no such status
  if (status === "fine") return [];
  return writable && (await admin.isReady()) ? [...names, verdict] : [];
}

export async function helpers(client: Client): Promise<boolean> {
  const store: DedupeStore = { seen: () => false, mark: () => {} };
  const handler = exactlyOnce<HeartbeatReceived>(store, (event) => event.payload.pid);
  await client.topic<HeartbeatReceived>("heartbeat.received").subscribe("g", handler);
  await transform<HeartbeatReceived>(client, "heartbeat.received", "g", (event) => [{ topic: "out", payload: event.payload.pid }]);
  const warm = await warmUp<HeartbeatReceived>(client, "heartbeat.received");
  const names: string[] = [...warm.state.values()].map(({ payload }) => payload.name);
  for await (const event of new Reader(client).follow<HeartbeatReceived>("heartbeat.received")) names.push(event.payload.name);
  const state = await new State("http://127.0.0.1:8090", { token: "t" }).ofKey<HeartbeatReceived>("t", "k", { at: "5m ago" });
  const lease: Lease<HeartbeatReceived> | undefined = undefined;
  const small = new EventClient("ws://127.0.0.1:8090", "token");
  small.modAck("t", "g", "id", 1_000);
  try {
    await small.publish("t", state?.state.pid);
  } catch (error) {
    return error instanceof PrometheanError && error.isRetryable && error.hasNoSideEffects && lease === undefined;
  }
  return true;
}
