// Sums and words about the status, as `spillway status` computes them.

// sums adds the models of a region or zone.
export function sums(models) {
  const out = { ready: 0, total: 0, running: 0, queued: 0, prefill: 0, decode: 0, backlog: 0, kvFree: 0, kvTotal: 0, headroom: 0, wait: 0 };
  for (const m of models || []) {
    out.ready += m.ready; out.total += m.total; out.running += m.running; out.queued += m.queued;
    out.prefill += m.prefill_tokens_per_second; out.decode += m.decode_tokens_per_second; out.backlog += m.backlog_tokens;
    out.kvFree += m.kv_free_tokens; out.kvTotal += m.kv_total_tokens; out.headroom += m.headroom_tokens_per_second;
    out.wait = Math.max(out.wait, m.wait_seconds);
  }
  return out;
}

// loadOf is the share of the prefill capacity that is in use: what the class standard cannot use any more within its target.
export const loadOf = (s) => (s.prefill > 0 ? Math.max(0, Math.min(1, 1 - s.headroom / s.prefill)) : null);

export const kvUse = (free, total) => (total > 0 ? 1 - free / total : null);

// healthOf is the HEALTH column of the command.
export function healthOf(state, models) {
  if (state === 'lost' || state === 'unknown') return ['unknown', 'muted'];
  const s = sums(models);
  if (s.ready === 0) return ['down', 'bad'];
  return (models || []).some((m) => m.ready < m.total) ? ['degraded', 'warn'] : ['ready', 'good'];
}

// level is the colour step of a share, 0 to 4, or n for an unknown one.
export function level(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return 'n';
  return share < 0.2 ? 0 : share < 0.5 ? 1 : share < 0.75 ? 2 : share < 0.9 ? 3 : 4;
}

export const levelNames = [[0, 'below 20 %'], [1, '20–50 %'], [2, '50–75 %'], [3, '75–90 %'], [4, '90 % and more'], ['n', 'unknown']];

// listPaths lists what can be drained, with regions first.
export function listPaths(status) {
  const regions = [], zones = [], workers = [];
  for (const r of (status && status.regions) || []) {
    regions.push(r.name);
    for (const z of r.zones || []) {
      if (!zones.includes(r.name + '/' + z.name)) zones.push(r.name + '/' + z.name);
      for (const w of z.workers || []) if (workers.length < 500) workers.push(r.name + '/' + z.name + '/' + w.name);
    }
  }
  return [...regions, ...zones, ...workers];
}

export const listModels = (status) => [...new Set(((status && status.regions) || []).flatMap((r) => (r.models || []).map((m) => m.name)))].sort();
