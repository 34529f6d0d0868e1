/**
 * Consume, transform, produce.
 * @module
 */

import { producedId } from "./derived_id.js";

/**
 * @typedef {object} Product
 * @property {string} topic The topic.
 * @property {unknown} payload The payload.
 * @property {Omit<import("./types.js").PublishOptions, "id">} [opts] Options of the event.
 */

/**
 * Publishes events because of events, each exactly once. The events that `fn` returns for an event are published in one
 * commit, with ids that are derived from that event, before the event is acked. If the event comes again, its products
 * are recognised as duplicates (within the `dedupe_window` of their topics, a day by default). So `fn` must return the
 * same products each time; other products are refused with `id_conflict`.
 * @template [T=any]
 * @param {import("./client.js").Client<any>} client
 * @param {string} topic A topic or pattern.
 * @param {string} group
 * @param {(event: import("./types.js").BusEvent<T>, lease: import("./lease.js").Lease<T>) => Product[] | Promise<Product[]>} fn
 * @param {import("./types.js").SubscribeOptions} [options]
 * @returns {Promise<import("./subscription.js").Subscription<T>>}
 */
export function transform(client, topic, group, fn, options) {
  return client.subscribe(
    topic,
    group,
    async (event, lease) => {
      const products = await fn(event, lease);
      if (products.length === 0) return;
      const events = products.map(({ topic: to, payload, opts }, n) => {
        const id = producedId(group, event.topic, event.id, n);
        return { topic: to, payload, opts: { caused_by: [event.id], ...opts, id } };
      });
      await client.publishMany(events, { signal: lease.signal });
    },
    options,
  );
}
