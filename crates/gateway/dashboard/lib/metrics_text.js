/**
 * The page of metrics: text for Prometheus, read into families.
 * @module
 */

/** @typedef {{name: string, labels: Record<string, string>, value: number}} Sample */
/** @typedef {{name: string, help: string, type: string, samples: Sample[]}} Family */

/**
 * @param {string} text
 * @returns {Map<string, Family>}
 */
export function parseMetrics(text) {
  /** @type {Map<string, Family>} */
  const families = new Map();
  const family = (/** @type {string} */ name) => {
    let found = families.get(name);
    if (!found) families.set(name, (found = { name, help: "", type: "", samples: [] }));
    return found;
  };
  let last = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("# ")) {
      const [, what, name, ...rest] = line.split(" ");
      last = name;
      if (what === "HELP") family(name).help = rest.join(" ");
      if (what === "TYPE") family(name).type = rest.join(" ");
    } else if (line !== "") {
      const sample = parseSample(line);
      if (sample) family(sample.name.startsWith(last) ? last : sample.name).samples.push(sample);
    }
  }
  return families;
}

const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;

/** @param {string} line */
function parseSample(line) {
  const match = SAMPLE.exec(line);
  if (!match) return undefined;
  /** @type {Record<string, string>} */
  const labels = {};
  if (match[2]) {
    for (const [, name, value] of match[2].matchAll(LABEL)) {
      labels[name] = value.includes("\\") ? value.replace(/\\n/g, "\n").replace(/\\(.)/g, "$1") : value;
    }
  }
  return { name: match[1], labels, value: Number(match[3]) };
}

/**
 * Whether a family has a sample. A server describes also metrics that its store does not have.
 * @param {Map<string, Family>} families
 * @param {string} name
 */
export function hasSamples(families, name) {
  return (families.get(name)?.samples.length ?? 0) > 0;
}

/**
 * The sum of all samples of a family.
 * @param {Map<string, Family>} families
 * @param {string} name
 */
export function total(families, name) {
  let sum = 0;
  for (const sample of families.get(name)?.samples ?? []) sum += sample.value;
  return sum;
}

/**
 * The cumulative counts of a histogram, added up over its labels.
 * @param {Map<string, Family>} families
 * @param {string} name
 * @returns {Map<string, number>} By upper bound.
 */
export function buckets(families, name) {
  const found = new Map();
  for (const sample of families.get(name)?.samples ?? []) {
    if (sample.name !== `${name}_bucket`) continue;
    found.set(sample.labels.le, (found.get(sample.labels.le) ?? 0) + sample.value);
  }
  return found;
}

/**
 * The bound below which a part of the observations between two readings lies.
 * @param {Map<string, number>} before
 * @param {Map<string, number>} after
 * @param {number} part From 0 to 1.
 * @returns {string | undefined} The bound, or `>` and the last bound; `undefined` without observations.
 */
export function quantile(before, after, part) {
  const counts = [...after].map(([bound, count]) => ({ bound, count: count - (before.get(bound) ?? 0) }));
  const all = counts.at(-1)?.count ?? 0;
  if (all <= 0) return undefined;
  const at = counts.findIndex(({ count }) => count >= all * part);
  return counts[at].bound === "+Inf" ? `>${counts[at - 1]?.bound ?? 0}` : counts[at].bound;
}
