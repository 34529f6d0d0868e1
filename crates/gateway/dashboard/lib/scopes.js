/**
 * What the scopes of a token allow, as far as the dashboard offers it. The server decides again at every call.
 * @module
 */

const DERIVED = /\.(dlq|snapshot|v\d+)$/;

/**
 * Whether a pattern of a scope matches a topic: `a.*` is one more word, `a.**` one or more, `**` every topic.
 * @param {string} pattern
 * @param {string} topic
 */
export function matches(pattern, topic) {
  if (pattern === topic) return true;
  // Topics of the system must be named.
  if (topic.startsWith("_")) return false;
  if (pattern === "**") return true;
  const wanted = pattern.split(".");
  const words = topic.split(".");
  const isOpen = wanted.at(-1) === "**";
  if (isOpen ? words.length < wanted.length : words.length !== wanted.length) return false;
  return wanted.every((word, index) => word === "**" || word === "*" || word === words[index]);
}

/** What a token may do. */
export class Rights {
  /** @param {string[]} scopes */
  constructor(scopes) {
    const expand = { "topic:write": "publish:**", "topic:read": "subscribe:**" };
    const all = scopes.map((scope) => expand[/** @type {"topic:read"} */ (scope)] ?? scope);
    /** @private */
    this.allowed = all.filter((scope) => !scope.startsWith("!"));
    /** @private */
    this.denied = all.filter((scope) => scope.startsWith("!")).map((scope) => scope.slice(1));
  }

  /** Whether the token may do everything. */
  get isAdmin() {
    return this.allowed.includes("admin") && !this.denied.includes("admin");
  }

  /** @param {string} topic */
  mayPublish(topic) {
    return this.may("publish", topic);
  }

  /** @param {string} topic */
  mayRead(topic) {
    const collection = topic.match(/^(.+)\.changed$/)?.[1];
    return this.may("subscribe", topic) || (collection !== undefined && this.mayReadCollection(collection));
  }

  /** @param {string} topic */
  mayManage(topic) {
    return this.may("manage", topic);
  }

  /** Whether there is any topic that the token may manage. */
  get mayManageSomewhere() {
    if (this.denied.includes("admin")) return false;
    return this.allowed.some((scope) => scope === "admin" || (scope.startsWith("manage:") && !scope.includes("@")));
  }

  /** @param {string} collection */
  mayReadCollection(collection) {
    const fits = (/** @type {string} */ scope) => {
      const name = scope.match(/^read:(.*)$/)?.[1];
      if (name === undefined) return false;
      return name.endsWith("*") ? collection.startsWith(name.slice(0, -1)) : name === collection;
    };
    return this.isAllowed(fits);
  }

  /**
   * @private
   * @param {string} verb
   * @param {string} topic
   */
  may(verb, topic) {
    const names = [topic, topic.replace(DERIVED, "")];
    return this.isAllowed((scope) => {
      if (!scope.startsWith(`${verb}:`)) return false;
      const pattern = scope.slice(verb.length + 1);
      // A scope for one group allows what is done as that group, and nothing that the dashboard offers.
      if (pattern.includes("@")) return false;
      return names.some((name) => matches(pattern, name));
    });
  }

  /**
   * @private
   * @param {(scope: string) => boolean} fits
   */
  isAllowed(fits) {
    if (this.denied.includes("admin")) return false;
    return !this.denied.some(fits) && (this.allowed.includes("admin") || this.allowed.some(fits));
  }
}
