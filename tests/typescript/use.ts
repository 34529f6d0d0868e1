// Uses what is generated: the compiler must accept this, and refuse what is marked.

import { schemas, topics, versions } from "../../fixtures/schema/generate/golden/examples";
import type { Payloads, Topic } from "../../fixtures/schema/generate/golden/examples";
import type { ShapesDrawn, TreeGrown } from "../../fixtures/schema/generate/golden/nasty";

export function publish<T extends Topic>(topic: T, payload: Payloads[T]): [T, Payloads[T], number, string] {
  return [topic, payload, versions[topic], schemas[topic]];
}

const state = { processId: "h:n:7", name: "n", host: "h", pid: 7, cpu_pct: 1, mem_mb: 2, last_seen_ts: 3 };
publish(topics.processState, { ...state, status: "alive" });
publish("heartbeat.received", { pid: 7, name: "n", host: "h", cpu_pct: 1, mem_mb: 2 });
// @ts-expect-error no such word
publish(topics.processState, { ...state, status: "dead" });
// @ts-expect-error no such topic
publish("no.such", {});
// @ts-expect-error a property is missing
publish("heartbeat.received", { pid: 7 });

export function area(drawn: ShapesDrawn): number {
  switch (drawn.shape.kind) {
    case "circle":
      return drawn.shape.r;
    case "sq-uare":
      return drawn.shape.a;
    case "Dot":
      return 0;
  }
}

export const tree: TreeGrown = { root: { left: { right: null }, expression: { op: "not", of: { op: "true" } } } };
// @ts-expect-error nothing but the word
export const always: ShapesDrawn["always"] = "that";
