// Waiting for what must happen.

/** Waits until a function returns something true, and returns it. */
export async function until(isTrue, { timeoutMs = 20_000, what = isTrue.toString() } = {}) {
  const end = Date.now() + timeoutMs;
  while (true) {
    const value = await isTrue();
    if (value) return value;
    if (Date.now() > end) throw new Error(`did not happen within ${timeoutMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
