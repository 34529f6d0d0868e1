// Shows the state of every process as it changes, and reports the page itself as a process.

import { Client, warmUp } from "/promethean/index.js";

const rows = document.querySelector("#processes");
const client = new Client(`${location.origin}/bus`, {
  onState: (state) => (document.querySelector("#state").textContent = state),
});

/** One row for each process, in the order of their names. */
function show(process) {
  const id = `process-${process.processId}`;
  const row = document.getElementById(id) ?? rows.appendChild(Object.assign(document.createElement("tr"), { id }));
  row.className = process.status;
  const seen = new Date(process.last_seen_ts).toLocaleTimeString();
  const texts = [
    process.processId,
    process.status,
    `${process.cpu_pct.toFixed(1)} %`,
    `${process.mem_mb.toFixed(0)} MB`,
    seen,
  ];
  row.replaceChildren(
    ...texts.map((text, column) =>
      Object.assign(document.createElement("td"), { textContent: text, className: column > 1 ? "number" : "" }),
    ),
  );
  rows.append(...[...rows.children].sort((a, b) => a.id.localeCompare(b.id)));
}

// The page is a process too: it publishes a heartbeat over its WebSocket every 5 seconds.
const pid = Math.floor(Math.random() * 100_000);
async function beat() {
  const mem_mb = (performance.memory?.usedJSHeapSize ?? 0) / 1e6;
  await client.publish("heartbeat.received", { pid, name: "page", host: location.hostname, cpu_pct: 0, mem_mb });
}
setInterval(() => beat().catch(console.error), 5_000);
beat().catch(console.error);

// Begins with the snapshots and goes on with the events after them, without a gap. It needs no group: every page sees
// every event.
const processes = await warmUp(client, "process.state");
for (const { payload } of processes.state.values()) show(payload);
for await (const { payload } of processes.follow()) if (payload) show(payload);
