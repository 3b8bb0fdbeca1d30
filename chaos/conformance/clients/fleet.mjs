// Common parts of the scripts: where the fleet is, resolution of its names by its own DNS, and checks with a count of failures.
import dns from "node:dns";

export const env = (name) => {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: start the scripts by run.sh`);
  return value;
};

// The fleet's names are resolved by the fleet's DNS, as a client's resolver would do; all other names by the system.
const [server] = [env("FLEET_DNS")];
const own = new dns.Resolver();
own.setServers([server]);
const system = dns.lookup;
dns.lookup = (host, options, done) => {
  if (typeof options === "function") [options, done] = [{}, options];
  if (!host.endsWith(".spillway.test")) return system(host, options, done);
  own.resolve4(host, (error, addresses) => {
    if (error) return done(error);
    if (options?.all) return done(null, addresses.map((address) => ({ address, family: 4 })));
    done(null, addresses[0], 4);
  });
};

let failed = 0;
export const check = async (what, run) => {
  const begun = performance.now();
  try {
    const detail = await run();
    console.log(`ok    ${what}${detail ? `: ${detail}` : ""} (${Math.round(performance.now() - begun)} ms)`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${what}: ${error?.stack ?? error}`);
  }
};
// counting is a fetch that records the answers.
export const counting = () => {
  const calls = [];
  return { calls, fetch: async (...a) => { const r = await fetch(...a); calls.push({ status: r.status, at: performance.now(), headers: r.headers }); return r; } };
};

// retries causes every error of a gateway with a client that may retry once, and checks that it does what the answer states:
// x-should-retry, and how long to wait. make(options) is a client, ask(client, {model, content, headers}) one request.
export const retries = async (make, ask, model) => {
  const cases = [
    ["a wrong key", 401, false, { apiKey: "wrong" }],
    ["a model that the key may not use", 403, false, { apiKey: env("FLEET_NARROW_KEY") }],
    ["an unknown model", 404, false, {}, { model: "no-such" }],
    ["an invalid value", 400, false, {}, { headers: { "x-spillway-class": "first" } }],
    ["a deadline that cannot be met", 504, false, {}, { headers: { "x-spillway-deadline-ms": "1" }, content: "word ".repeat(4000) }],
    ["a spent daily budget", 429, false, { apiKey: env("FLEET_SPENT_KEY") }],
    ["no capacity", 503, true, {}, { model: "unserved-model" }],
  ];
  for (const [what, status, again, options, asked = {}] of cases) {
    await check(`${what}: ${status}, ${again ? "retried after its Retry-After" : "not retried"}`, async () => {
      const seen = counting();
      const ai = make({ maxRetries: 1, fetch: seen.fetch, ...options });
      let e;
      for (let i = 0; i < 4 && !seen.calls.some((c) => c.status === status); i++) e = await ask(ai, { model, content: "Where do I run?", headers: {}, ...asked }).catch((e) => e); // a budget must be spent first
      const calls = seen.calls.filter((c) => c.status !== 200);
      const shouldRetry = calls[0]?.headers.get("x-should-retry");
      want(e?.status === status && calls.length === (again ? 2 : 1) && shouldRetry === String(again), `${calls.map((c) => c.status)}, x-should-retry ${shouldRetry}: ${e}`);
      if (!again) return;
      const after = Number(calls[0].headers.get("retry-after-ms"));
      const waited = calls[1].at - calls[0].at;
      want(after > 0 && Math.ceil(after / 1000) === Number(calls[0].headers.get("retry-after")) && waited >= 0.95 * after, `waited ${waited} ms of ${after}`);
      return `Retry-After ${after} ms, waited ${Math.round(waited)} ms`;
    });
  }
};
export const want = (good, what) => {
  if (!good) throw new Error(what);
};
export const end = () => process.exit(failed ? 1 : 0);
