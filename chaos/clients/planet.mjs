// What every script needs: where the planet is, names resolved by its own DNS, and checks that count.
import dns from "node:dns";

export const env = (name) => {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: start the scripts by run.sh`);
  return value;
};

// The planet's names are resolved by the planet: what a client's resolver would do. Everything else stays the system's.
const [server] = [env("PLANET_DNS")];
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
    const said = await run();
    console.log(`ok    ${what}${said ? `: ${said}` : ""} (${Math.round(performance.now() - begun)} ms)`);
  } catch (error) {
    failed++;
    console.log(`FAIL  ${what}: ${error?.stack ?? error}`);
  }
};
export const want = (good, what) => {
  if (!good) throw new Error(what);
};
export const end = () => process.exit(failed ? 1 : 0);
