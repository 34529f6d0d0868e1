/**
 * XXH3 with 128 bits, seed 0, for inputs of 17 bytes and more. The server derives ids with it.
 * @module
 */

const MASK = (1n << 64n) - 1n;
const PRIME32 = [0x9e3779b1n, 0x85ebca77n, 0xc2b2ae3dn];
const PRIME64 = [
  0x9e3779b185ebca87n,
  0xc2b2ae3d27d4eb4fn,
  0x165667b19e3779f9n,
  0x85ebca77c2b2ae63n,
  0x27d4eb2f165667c5n,
];
const AVALANCHE = 0x165667919e3779f9n;
const STRIPE_BYTES = 64;
const BLOCK_STRIPES = 16;
const SECRET_BYTES = 192;

const SECRET = view(
  Uint8Array.from(
    (
      "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e" +
      "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a" +
      "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f" +
      "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ).match(/../g) ?? [],
    (byte) => parseInt(byte, 16),
  ),
);

/**
 * Hashes bytes.
 * @param {Uint8Array} bytes At least 17.
 * @returns {bigint} 128 bits.
 */
export function xxh3(bytes) {
  const input = view(bytes);
  const { low, high } = bytes.length <= 240 ? short(input, bytes.length) : long(input, bytes.length);
  return (high << 64n) | low;
}

/**
 * @param {DataView} input
 * @param {number} length
 */
function short(input, length) {
  const acc = { low: (BigInt(length) * PRIME64[0]) & MASK, high: 0n };
  if (length <= 128) {
    for (let at = Math.ceil(length / 32) * 16 - 16; at >= 0; at -= 16) mix32(acc, input, at, length - 16 - at, at * 2);
  } else {
    for (let at = 0; at < 128; at += 32) mix32(acc, input, at, at + 16, at);
    acc.low = avalanche(acc.low);
    acc.high = avalanche(acc.high);
    for (let end = 160; end <= length; end += 32) mix32(acc, input, end - 32, end - 16, end - 157);
    mix32(acc, input, length - 16, length - 32, 103);
  }
  const high = (acc.low * PRIME64[0] + acc.high * PRIME64[3] + BigInt(length) * PRIME64[1]) & MASK;
  return { low: avalanche((acc.low + acc.high) & MASK), high: -avalanche(high) & MASK };
}

/**
 * @param {{low: bigint, high: bigint}} acc
 * @param {DataView} input
 * @param {number} one
 * @param {number} two
 * @param {number} secret
 */
function mix32(acc, input, one, two, secret) {
  acc.low = ((acc.low + mix16(input, one, secret)) & MASK) ^ ((at(input, two) + at(input, two + 8)) & MASK);
  acc.high = ((acc.high + mix16(input, two, secret + 16)) & MASK) ^ ((at(input, one) + at(input, one + 8)) & MASK);
}

/**
 * @param {DataView} input
 * @param {number} from
 * @param {number} secret
 */
function mix16(input, from, secret) {
  return fold((at(input, from) ^ at(SECRET, secret)) * (at(input, from + 8) ^ at(SECRET, secret + 8)));
}

/**
 * @param {DataView} input
 * @param {number} length
 */
function long(input, length) {
  const acc = [PRIME32[2], PRIME64[0], PRIME64[1], PRIME64[2], PRIME64[3], PRIME32[1], PRIME64[4], PRIME32[0]];
  const stripes = Math.floor((length - 1) / STRIPE_BYTES);
  for (let stripe = 0; stripe < stripes; stripe++) {
    const inBlock = stripe % BLOCK_STRIPES;
    accumulate(acc, input, stripe * STRIPE_BYTES, inBlock * 8);
    if (inBlock === BLOCK_STRIPES - 1) scramble(acc);
  }
  accumulate(acc, input, length - STRIPE_BYTES, SECRET_BYTES - STRIPE_BYTES - 7);
  const size = BigInt(length);
  return {
    low: merge(acc, 11, (size * PRIME64[0]) & MASK),
    high: merge(acc, SECRET_BYTES - STRIPE_BYTES - 11, ~(size * PRIME64[1]) & MASK),
  };
}

/**
 * @param {bigint[]} acc
 * @param {DataView} input
 * @param {number} from
 * @param {number} secret
 */
function accumulate(acc, input, from, secret) {
  for (let lane = 0; lane < 8; lane++) {
    const value = at(input, from + 8 * lane);
    const key = value ^ at(SECRET, secret + 8 * lane);
    acc[lane ^ 1] = (acc[lane ^ 1] + value) & MASK;
    acc[lane] = (acc[lane] + (key & 0xffffffffn) * (key >> 32n)) & MASK;
  }
}

/** @param {bigint[]} acc */
function scramble(acc) {
  for (let lane = 0; lane < 8; lane++) {
    const value = acc[lane] ^ (acc[lane] >> 47n) ^ at(SECRET, SECRET_BYTES - STRIPE_BYTES + 8 * lane);
    acc[lane] = (value * PRIME32[0]) & MASK;
  }
}

/**
 * @param {bigint[]} acc
 * @param {number} secret
 * @param {bigint} start
 */
function merge(acc, secret, start) {
  let sum = start;
  for (let pair = 0; pair < 4; pair++) {
    const one = acc[2 * pair] ^ at(SECRET, secret + 16 * pair);
    sum += fold(one * (acc[2 * pair + 1] ^ at(SECRET, secret + 16 * pair + 8)));
  }
  return avalanche(sum & MASK);
}

/** @param {bigint} product Up to 128 bits. */
function fold(product) {
  return (product & MASK) ^ (product >> 64n);
}

/** @param {bigint} hash */
function avalanche(hash) {
  const mixed = ((hash ^ (hash >> 37n)) * AVALANCHE) & MASK;
  return mixed ^ (mixed >> 32n);
}

/**
 * @param {DataView} bytes
 * @param {number} from
 */
function at(bytes, from) {
  return bytes.getBigUint64(from, true);
}

/** @param {Uint8Array} bytes */
function view(bytes) {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
