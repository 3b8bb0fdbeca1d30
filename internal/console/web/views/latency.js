// The parts of the time to the first token, by region and by model.
import { h, table } from '../dom.js';
import { count, millis } from '../format.js';
import { listModels } from '../fleet.js';
import { quantile } from '../traffic.js';

export const latency = {
  id: 'latency', title: () => 'Latency', feeds: ['status'], needs: 'status',
  render(ctx) {
    const status = ctx.live.value('status');
    if (!status) return [h('p', { class: 'muted' }, 'waiting for the first figures')];
    const regions = status.regions.filter((r) => (r.zones || []).length).map((r) => [r.name, ctx.traffic.split(r.name, null)]);
    const models = listModels(status).map((m) => [m, ctx.traffic.split(null, m)]);
    return [h('p', { class: 'muted' }, 'Means ' + ctx.traffic.label + '. Network: from the arrival at the gateway to that at the zone, with spills and the gateway itself. Queue: until the request is sent to a worker. Prefill: from then to the first byte.'),
      h('div', { class: 'legend' }, [['network', 'network and gateway'], ['queue', 'queue'], ['prefill', 'prefill']].map(([c, n]) => h('span', {}, h('span', { class: 'key b' + c }), n))),
      h('h2', {}, 'By region'), splitTable('By region', 'Region', regions), h('h2', {}, 'By model'), splitTable('By model', 'Model', models)];
  },
};

function splitTable(caption, first, rows) {
  const longest = Math.max(1e-9, ...rows.map(([, s]) => total(s)));
  return table(caption, [{ name: first }, { name: 'Requests', n: 1 }, { name: 'TTFT p50', n: 1 }, { name: 'TTFT p99', n: 1 }, { name: 'TTFT mean', n: 1 }, { name: 'Network', unit: 'mean', n: 1 }, { name: 'Queue', unit: 'mean', n: 1 }, { name: 'Prefill', unit: 'mean', n: 1 }, { name: 'Parts' }],
    rows.map(([name, s]) => ({ key: name, cells: [name, count(s.n || s.attempts), millis(quantile(s.ttft, 0.5)), millis(quantile(s.ttft, 0.99)), millis(s.ttft.mean), millis(s.network), millis(s.queue), millis(s.prefill), bar(s, longest)] })), 'no requests yet');
}

const total = (s) => (s.network || 0) + (s.queue || 0) + (s.prefill || 0);

function bar(s, longest) {
  let x = 0;
  const part = (cls, v) => {
    const width = ((v || 0) / longest) * 100, at = x;
    x += width;
    return h('rect', { class: cls, x: at.toFixed(2), y: 0, width: width.toFixed(2), height: 10 });
  };
  return h('svg', { class: 'bar', viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': `network ${millis(s.network)}, queue ${millis(s.queue)}, prefill ${millis(s.prefill)}` }, part('network', s.network), part('queue', s.queue), part('prefill', s.prefill));
}
