/**
 * JSON Schemas in words: an example of what fits, and the differences of two versions.
 * @module
 */

/**
 * A value that fits a schema, as far as its common keywords say.
 * @param {any} schema
 * @param {any} [root]
 * @param {number} [depth]
 * @returns {any}
 */
export function example(schema, root = schema, depth = 0) {
  if (depth > 12 || schema === true || schema === null || typeof schema !== "object") return null;
  if (typeof schema.$ref === "string" && schema.$ref.startsWith("#"))
    return example(resolve(root, schema.$ref), root, depth + 1);
  for (const name of ["const", "default"]) if (name in schema) return schema[name];
  if (Array.isArray(schema.examples) && schema.examples.length > 0) return schema.examples[0];
  if (Array.isArray(schema.enum)) return schema.enum[0];
  for (const name of ["oneOf", "anyOf"]) if (schema[name]?.length) return example(schema[name][0], root, depth + 1);
  const type = Array.isArray(schema.type)
    ? schema.type[0]
    : (schema.type ?? (schema.properties ? "object" : undefined));
  if (type === "object") {
    /** @type {Record<string, any>} */
    const value = {};
    for (const [name, inner] of Object.entries(schema.properties ?? {})) value[name] = example(inner, root, depth + 1);
    return value;
  }
  if (type === "array") return schema.items ? [example(schema.items, root, depth + 1)] : [];
  if (type === "string") return exampleText(schema);
  if (type === "integer" || type === "number") return schema.minimum ?? (schema.exclusiveMinimum ?? -1) + 1;
  return type === "boolean" ? true : null;
}

/** @param {any} schema */
function exampleText(schema) {
  const formats = {
    "date-time": "2027-01-31T12:00:00Z",
    date: "2027-01-31",
    email: "ada@example.com",
    uuid: "01890000-0000-7000-8000-000000000000",
    uri: "https://example.com/",
  };
  return formats[/** @type {"date"} */ (schema.format)] ?? "x".repeat(schema.minLength ?? 0);
}

/**
 * @param {any} root
 * @param {string} ref
 */
function resolve(root, ref) {
  let value = root;
  for (const word of ref.slice(1).split("/").filter(Boolean))
    value = value?.[word.replaceAll("~1", "/").replaceAll("~0", "~")];
  return value;
}

/**
 * The differences of two schemas as sentences.
 * @param {any} old
 * @param {any} now
 * @param {string} [at]
 * @returns {string[]}
 */
export function differences(old, now, at = "") {
  const where = at === "" ? "The payload" : `\`${at}\``;
  if (typeof old !== "object" || typeof now !== "object" || old === null || now === null) {
    return JSON.stringify(old) === JSON.stringify(now) ? [] : [`${where}: ${text(old)} became ${text(now)}.`];
  }
  const found = [];
  const [before, after] = [old.properties ?? {}, now.properties ?? {}];
  const path = (/** @type {string} */ name) => (at ? `${at}.${name}` : name);
  for (const name of Object.keys(after)) {
    const isRequired = (now.required ?? []).includes(name);
    if (!(name in before))
      found.push(`\`${path(name)}\` is new${isRequired ? " and required" : ", optional"}${typeText(after[name])}.`);
    else found.push(...differences(before[name], after[name], path(name)));
  }
  for (const name of Object.keys(before)) if (!(name in after)) found.push(`\`${path(name)}\` is no longer described.`);
  for (const name of now.required ?? []) {
    if (!(old.required ?? []).includes(name) && name in before) found.push(`\`${path(name)}\` is required now.`);
  }
  for (const name of old.required ?? []) {
    if (!(now.required ?? []).includes(name) && name in after) found.push(`\`${path(name)}\` is optional now.`);
  }
  if (old.items !== undefined && now.items !== undefined) found.push(...differences(old.items, now.items, `${at}[]`));
  const handled = new Set(["properties", "required", "items", "$schema"]);
  for (const name of new Set([...Object.keys(old), ...Object.keys(now)])) {
    if (handled.has(name) && !(name === "items" && (old.items === undefined) !== (now.items === undefined))) continue;
    if (JSON.stringify(old[name]) === JSON.stringify(now[name])) continue;
    if (!(name in old)) found.push(`${where} got \`${name}\`: ${text(now[name])}.`);
    else if (!(name in now)) found.push(`${where} lost \`${name}\`, which was ${text(old[name])}.`);
    else found.push(`${where}: \`${name}\` was ${text(old[name])} and is ${text(now[name])}.`);
  }
  return found;
}

/** @param {any} schema */
function typeText(schema) {
  return typeof schema?.type === "string" ? `: ${schema.type}` : "";
}

/** @param {any} value */
function text(value) {
  const shown = JSON.stringify(value) ?? "nothing";
  return shown.length > 80 ? `${shown.slice(0, 79)}…` : shown;
}
