/**
 * Types of the wire that several modules share. This module has no code.
 * @module
 */

/**
 * An event as the server delivers it.
 * @template [T=any]
 * @typedef {object} BusEvent
 * @property {string} id A UUID that names the event within its topic.
 * @property {number} ts The time of the event, epoch ms.
 * @property {string} topic The topic of the event.
 * @property {number} offset The position of the event in its topic.
 * @property {string} [key] What the event is about.
 * @property {number} [partition] A label for routing.
 * @property {Record<string, string>} [headers] Texts by name.
 * @property {T} payload Any JSON; `null` is a tombstone.
 * @property {string[]} [tags] Words to filter by.
 * @property {string[]} [caused_by] Ids of the events that led to this event.
 * @property {string} [sid] The publisher's session.
 */

/**
 * Options of one event that is published.
 * @typedef {object} PublishOptions
 * @property {string} [id] The id, a UUID. Minted by the client if left out.
 * @property {number} [ts] The time, epoch ms. The server's time if left out.
 * @property {string} [key] What the event is about.
 * @property {Record<string, string>} [headers] Texts by name.
 * @property {string[]} [tags] Words to filter by.
 * @property {string[]} [caused_by] Ids of the events that led to this event.
 * @property {string} [sid] The publisher's session.
 * @property {number} [partition] A label for routing.
 * @property {number} [expected_offset] Publish only if the topic's next offset is this one.
 * @property {number | null} [expected_key_offset] Publish only if the key's latest event has this offset; `null`:
 *   if the key has no event.
 */

/**
 * How long a call waits.
 * @typedef {object} WaitOptions
 * @property {AbortSignal} [signal] Ends the wait. What was sent already may still happen.
 * @property {number} [timeoutMs] The longest wait.
 */

/**
 * The answer to a publish: the event is as durable as `durability` says.
 * @typedef {object} Published
 * @property {string} id The id of the event.
 * @property {string} topic The topic.
 * @property {number} offset The offset of the event in the topic.
 * @property {number} ts The time of the event, epoch ms.
 * @property {string} durability `fsync` survives a power cut, `os` a crash of the server.
 * @property {number} [partition] The label for routing, if the topic has partitions.
 * @property {boolean} [duplicate] True if the event was there already.
 */

/**
 * One event of a batch.
 * @template [T=any]
 * @typedef {object} EventToPublish
 * @property {string} topic The topic.
 * @property {T} payload The payload.
 * @property {PublishOptions} [opts] Options of the event.
 */

/**
 * The answer to a batch: all its events are there.
 * @typedef {object} PublishedBatch
 * @property {number} count How many events the batch has.
 * @property {number} first_offset The offset of the first event.
 * @property {number} last_offset The offset of the last event.
 * @property {string[]} ids The ids of the events, in order.
 * @property {number} duplicates How many of the events were there already.
 * @property {string} durability As for one event.
 */

/**
 * Where a group begins, or where a seek moves it.
 * @typedef {object} StartOptions
 * @property {"latest" | "earliest" | "ts" | "afterId" | "offset"} [from] The kind of position.
 * @property {number} [ts] With `from: "ts"`, epoch ms.
 * @property {string} [afterId] With `from: "afterId"`.
 * @property {number} [offset] With `from: "offset"`.
 */

/**
 * Options of a subscription that the server knows: the first four are the group's, the others the member's.
 * @typedef {object} GroupOptions
 * @property {object} [filter] Which events the group gets, by key, key prefix, header and tag.
 * @property {"none" | "key"} [order] `key`: an event comes only when earlier events of its key are finished.
 * @property {number} [partitions] The number of partitions that named members share.
 * @property {number} [maxAttempts] Attempts before an event becomes a dead letter.
 * @property {number} [batchSize] The most events that come at once.
 * @property {number} [maxInFlight] The most events that are unfinished at a time (100).
 * @property {number} [ackTimeoutMs] How long a lease lasts (30000).
 * @property {boolean} [manualAck] `false`: an event is finished when the server has written it.
 * @property {string} [memberId] The name of this member, in partitioned groups.
 * @property {unknown} [meta] The member's description of itself.
 * @property {boolean} [pull] Events come only when `fetch` asks for them.
 * @property {boolean} [normalize] Lift old events to the latest version of their schema.
 */

/**
 * A change of the partitions of this member.
 * @typedef {object} Rebalance
 * @property {number} epoch Grows with every change of the group.
 * @property {number[]} assigned Partitions that this member has got.
 * @property {number[]} revoked Partitions that this member has lost; their leases are over.
 */

/**
 * Options of a subscription that the client uses itself.
 * @typedef {object} HandlerOptions
 * @property {number} [concurrency] How many events are handled at a time (1). 1 keeps the order.
 * @property {boolean} [autoExtend] Keep leases while events wait here or are handled (true).
 * @property {number} [maxLeaseMs] The longest time that a lease is kept that way (1 hour).
 * @property {AbortSignal} [signal] Closes the subscription.
 * @property {(change: Rebalance) => void} [onRebalance] Called when the partitions of this member change.
 * @property {(error: Error, event?: BusEvent) => void} [onError] Called when a handler throws, when an ack comes too
 *   late, and when the subscription ends.
 */

/** @typedef {StartOptions & GroupOptions & HandlerOptions} SubscribeOptions */

/**
 * A frame of the server, decoded. Fields that the client does not know are kept and ignored.
 * @typedef {{op: string, corr?: any} & Record<string, any>} ServerFrame
 */

/**
 * A text, or a function that returns a token and is called for every connection and before the token expires.
 * @typedef {string | (() => string | Promise<string>)} Token
 */

export {};
