// Rates and latencies of the last minute, from counts since the start of the processes.

const windowMS = 60000;

// flatten lists the counts of a status by region, source, kind and name.
function flatten(status) {
  const out = new Map();
  const add = (region, source, kind, name, counts, sum, bounds) => out.set([region, source, kind, name].join('\n'), { region, source, kind, name, counts, sum, bounds });
  for (const r of status.regions || []) {
    for (const g of r.gateways || []) {
      for (const c of (g.traffic && g.traffic.ttft) || []) add(r.name, 'g/' + g.name, 'ttft', c.model, c.counts, c.sum_seconds, c.bounds_seconds);
      for (const c of (g.traffic && g.traffic.spills) || []) add(r.name, 'g/' + g.name, 'spill', c.to, [c.count], 0, []);
    }
    for (const z of r.zones || []) {
      const source = 'z/' + z.name + '/' + z.instance;
      for (const c of (z.traffic && z.traffic.queue_wait) || []) add(r.name, source, 'queue', c.model, c.counts, c.sum_seconds, c.bounds_seconds);
      for (const c of (z.traffic && z.traffic.first_byte) || []) add(r.name, source, 'first', c.model, c.counts, c.sum_seconds, c.bounds_seconds);
    }
  }
  return out;
}

export class TrafficWindow {
  constructor() { this.samples = []; }

  // push adds a status received at a time (ms).
  push(status, at) {
    this.samples.push({ at, rows: flatten(status) });
    while (this.samples.length > 2 && this.samples[1].at <= at - windowMS) this.samples.shift();
  }

  clear() { this.samples = []; }

  // seconds is the length of the window; 0: figures are since the start of the processes.
  get seconds() { return this.samples.length < 2 ? 0 : (this.samples.at(-1).at - this.samples[0].at) / 1000; }

  get label() { return this.seconds < 2 ? 'since the start of the processes' : 'of the last ' + Math.round(this.seconds) + ' s'; }

  // collect sums the rows that match.
  collect(match) {
    const first = this.seconds < 2 ? null : this.samples[0], last = this.samples.at(-1);
    const out = { n: 0, sum: 0, counts: [], bounds: [] };
    for (const [key, row] of last ? last.rows : []) {
      if (!match(row)) continue;
      const before = first && first.rows.get(key);
      const restarted = before && before.counts.some((c, i) => c > row.counts[i]);
      const base = before && !restarted ? before : null;
      out.bounds = row.bounds;
      row.counts.forEach((c, i) => {
        const d = c - (base ? base.counts[i] : 0);
        out.counts[i] = (out.counts[i] || 0) + d;
        out.n += d;
      });
      out.sum += row.sum - (base ? base.sum : 0);
    }
    out.mean = out.n > 0 ? out.sum / out.n : null;
    return out;
  }

  // spills returns the spilled requests by source and target region, with the requests per second.
  spills() {
    const pairs = new Map();
    const last = this.samples.at(-1);
    for (const row of last ? last.rows.values() : []) if (row.kind === 'spill') pairs.set(row.region + '\n' + row.name, [row.region, row.name]);
    const out = [];
    for (const [from, to] of pairs.values()) {
      const n = this.collect((r) => r.kind === 'spill' && r.region === from && r.name === to).n;
      if (n > 0) out.push({ from, to, n, rate: this.seconds >= 2 ? n / this.seconds : null });
    }
    return out;
  }

  // split returns the parts of the TTFT of a region (null: all) and model (null: all).
  split(region, model) {
    const at = (kind) => this.collect((r) => r.kind === kind && (region === null || r.region === region) && (model === null || r.name === model));
    const ttft = at('ttft'), queue = at('queue'), first = at('first');
    const network = ttft.mean === null ? null : Math.max(0, ttft.mean - (queue.mean || 0) - (first.mean || 0));
    return { ttft, queue: queue.mean, prefill: first.mean, network, n: ttft.n, attempts: first.n };
  }
}

// quantile estimates a quantile from counts, linear within a bucket, as Prometheus does.
export function quantile(c, q) {
  if (!c || c.n === 0) return null;
  let rest = q * c.n;
  for (let i = 0; i < c.counts.length; i++) {
    if (rest <= c.counts[i] && c.counts[i] > 0) {
      if (i >= c.bounds.length) return c.bounds.at(-1);
      const low = i === 0 ? 0 : c.bounds[i - 1];
      return low + (c.bounds[i] - low) * (rest / c.counts[i]);
    }
    rest -= c.counts[i];
  }
  return c.bounds.at(-1);
}
