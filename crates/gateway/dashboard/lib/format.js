/**
 * Numbers, sizes and times as people read them.
 * @module
 */

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** The time zone of this browser, in which all times are shown. */
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** The zone with its present distance from UTC, such as `Europe/Berlin, UTC+1`. */
export function zoneText() {
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "longOffset" }).formatToParts(new Date());
  const offset = parts.find((part) => part.type === "timeZoneName")?.value.replace("GMT", "UTC") ?? "UTC";
  return zone === "UTC" ? "UTC" : `${zone}, ${offset}`;
}

/** @param {number} value */
export function count(value) {
  return whole.format(value);
}

/**
 * A number in few characters: 12.4K.
 * @param {number} value
 */
export function brief(value) {
  return value < 10_000 ? whole.format(value) : short.format(value);
}

/**
 * @param {number} value
 * @param {string} one
 * @param {string} [many]
 */
export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/**
 * Events in a second.
 * @param {number | undefined} value
 */
export function rate(value) {
  if (value === undefined || !Number.isFinite(value)) return "–";
  if (value > 0 && value < 10) return value.toFixed(1);
  return brief(Math.round(value));
}

/** @param {number} value */
export function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

/**
 * A time in the zone of this browser: `2026-11-16 20:05:28.123`.
 * @param {number} ms Epoch ms.
 */
export function time(ms) {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return String(ms);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${day} ${clock}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/**
 * The clock part of a time.
 * @param {number} ms
 */
export function clock(ms) {
  return time(ms).slice(11);
}

/**
 * @param {number} ms Epoch ms.
 * @param {number} [now]
 */
export function ago(ms, now = Date.now()) {
  const passed = now - ms;
  if (Math.abs(passed) < 1000) return "now";
  return passed > 0 ? `${duration(passed)} ago` : `in ${duration(-passed)}`;
}

/**
 * Cuts a text that is too long for its place.
 * @param {string} text
 * @param {number} most
 */
export function cut(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
