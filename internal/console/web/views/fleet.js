// The fleet: map, regions and their models.
import { h, table, notice } from '../dom.js';
import { age, count, millis, percent, rate, stateClass, stateWord, dash } from '../format.js';
import { healthOf, kvUse, level, levelNames, loadOf, sums } from '../fleet.js';
import { quantile } from '../traffic.js';
import { arc, gridPath, landPath, mapHeight, mapWidth, parseCell, project } from '../world.js';

export const fleet = {
  id: 'fleet', title: (s) => (s.tier === 'local' ? 'Zone' : s.tier === 'regional' ? 'Region' : 'Fleet'), feeds: ['status', 'plan'], needs: 'status',
  render(ctx) {
    const status = ctx.live.value('status');
    if (!status) return [h('p', { class: 'muted' }, 'waiting for the first figures')];
    const rows = [], all = sums(status.regions.filter((r) => r.state !== 'lost').flatMap((r) => r.models));
    for (const r of status.regions) rows.push(regionRow(ctx, r, status), ...modelRows(r));
    const ttft = ctx.traffic.collect((x) => x.kind === 'ttft');
    return [
      (status.notes || []).map((n) => notice(n)),
      h('div', { class: 'cards' },
        card(status.regions.filter((r) => healthOf(r.state, r.models)[0] === 'ready').length + ' / ' + status.regions.length, 'regions ready'),
        card(all.ready + ' / ' + all.total, 'workers ready'), card(percent(loadOf(all)), 'load'), card(count(all.running), 'running requests'), card(count(all.queued), 'queued requests'),
        card(count(all.prefill), 'prefill tok/s'), card(count(all.decode), 'decode tok/s'), card(millis(quantile(ttft, 0.5)), 'TTFT median')),
      status.regions.some((r) => r.place) ? worldMap(ctx, status) : null,
      h('h2', {}, 'Regions'),
      table('Regions', [{ name: 'Region' }, { name: 'Reports' }, { name: 'Health' }, { name: 'Report age', n: 1 }, { name: 'Ready', unit: 'workers', n: 1 }, { name: 'Load', n: 1 }, { name: 'KV use', n: 1 }, { name: 'Running', n: 1 }, { name: 'Queued', n: 1 },
        { name: 'Queue wait', unit: 'predicted, standard', n: 1 }, { name: 'TTFT p50', unit: 'measured', n: 1 }, { name: 'TTFT p99', unit: 'measured', n: 1 }, { name: 'Prefill', unit: 'tok/s', n: 1 }, { name: 'Decode', unit: 'tok/s', n: 1 }, { name: 'KV free', unit: 'tok', n: 1 }, { name: 'Remark', wide: 1 }], rows, 'no region is known'),
      h('p', { class: 'muted' }, 'TTFT and spills are ' + ctx.traffic.label + '.'),
    ];
  },
};

const card = (figure, name) => h('div', {}, h('b', {}, figure), h('span', {}, name));

function regionRow(ctx, r) {
  const s = sums(r.models), [health, cls] = r.draining && r.state === 'fresh' ? ['drained', 'warn'] : healthOf(r.state, r.models), old = r.state === 'lost' || r.state === 'stale';
  const ttft = ctx.traffic.collect((x) => x.kind === 'ttft' && x.region === r.name);
  return { key: r.name, cls: old ? 'sum old' : 'sum', cells: [h('span', {}, r.name, r.place && r.place.city ? h('span', { class: 'muted' }, ' ' + r.place.city) : null),
    h('span', { class: stateClass(r.state) }, stateWord(r.state)), h('span', { class: cls }, health), age(r.age_ms), s.ready + '/' + s.total,
    percent(loadOf(s)), percent(kvUse(s.kvFree, s.kvTotal)), count(s.running), count(s.queued), millis(s.wait), millis(quantile(ttft, 0.5)), millis(quantile(ttft, 0.99)), count(s.prefill), count(s.decode), count(s.kvFree), r.note || ''] };
}

function modelRows(r) {
  return (r.models || []).map((m) => ({ key: r.name + ' ' + m.name, cls: 'sub' + (r.state === 'lost' || r.state === 'stale' ? ' old' : ''), cells: [m.name, '', m.ready < m.total ? h('span', { class: m.ready ? 'warn' : 'bad' }, m.ready ? 'degraded' : 'down') : '', '', m.ready + '/' + m.total + (m.warm ? ' +' + m.warm + ' warm' : '') + (m.cold ? ' +' + m.cold + ' cold' : ''),
    percent(loadOf(sums([m]))), percent(kvUse(m.kv_free_tokens, m.kv_total_tokens)), count(m.running), count(m.queued), millis(m.wait_seconds), '', '', count(m.prefill_tokens_per_second), count(m.decode_tokens_per_second), count(m.kv_free_tokens), ''] }));
}

// maxDNSArcs bounds the drawn flows of DNS.
const maxDNSArcs = 80;

function worldMap(ctx, status) {
  const placed = status.regions.filter((r) => r.place), points = new Map(placed.map((r) => [r.name, project(r.place.lon, r.place.lat)]));
  const largest = Math.max(1, ...placed.map((r) => sums(r.models).prefill));
  const spills = ctx.traffic.spills().filter((s) => points.has(s.from) && points.has(s.to));
  const plan = ctx.live.value('plan'), dns = [];
  for (const service of (plan && plan.services) || []) for (const row of service.displaced || []) {
    const from = parseCell(row.cell);
    for (const share of row.shares || []) if (from && points.has(share.region) && dns.length < maxDNSArcs) dns.push(h('path', { class: 'dns', 'stroke-width': (0.6 + 1.4 * share.share).toFixed(1), d: arc(project(...from), points.get(share.region), 0.12) }, h('title', {}, `DNS: ${percent(share.share)} of the clients of ${row.cell} to ${share.region}`)));
  }
  const text = `${placed.length} regions; ${spills.length} spill flows; ${dns.length} displaced client areas. The table below has the figures.`;
  return [h('svg', { class: 'map', viewBox: `0 0 ${mapWidth} ${mapHeight}`, role: 'img', 'aria-label': 'World map: ' + text },
    h('path', { class: 'grid', d: gridPath }), h('path', { class: 'land', d: landPath }), dns,
    spills.map((s) => h('path', { class: 'spill', 'stroke-width': Math.min(5, 1 + (s.rate || 0) / 2).toFixed(1), d: arc(points.get(s.from), points.get(s.to), 0.22) }, h('title', {}, `spill ${s.from} to ${s.to}: ${spillText(s)}`))),
    placed.map((r) => circle(r, points.get(r.name), largest))),
  h('div', { class: 'legend' }, 'Load:', levelNames.map(([l, name]) => h('span', {}, h('span', { class: 'key b' + l }), name)), h('span', {}, 'Circle area: prefill capacity'), h('span', {}, h('span', { class: 'key bspill' }), 'spill'), h('span', {}, h('span', { class: 'key bdns' }), 'DNS away from the cheapest region')),
  spills.length ? h('p', {}, 'Spills: ' + spills.map((s) => `${s.from} to ${s.to} ${spillText(s)}`).join('; ')) : null];
}

const spillText = (s) => (s.rate === null ? count(s.n) + ' requests' : rate(s.rate) + ' requests/s');

function circle(r, [x, y], largest) {
  const s = sums(r.models), load = loadOf(s), lost = r.state === 'lost' || r.state === 'unknown' || s.ready === 0;
  const radius = 5 + 15 * Math.sqrt(s.prefill / largest), left = x > mapWidth - 130;
  const at = { x: (left ? x - radius - 4 : x + radius + 4).toFixed(1), 'text-anchor': left ? 'end' : 'start' };
  return h('g', { 'data-key': r.name }, h('circle', { class: lost ? 'lostdot' : 'dot f' + level(load), cx: x.toFixed(1), cy: y.toFixed(1), r: radius.toFixed(1) }, h('title', {}, `${r.name}: ${stateWord(r.state)}, load ${percent(load)}, ${s.ready} of ${s.total} workers`)),
    h('text', { ...at, y: (y - 1).toFixed(1), class: 'halo' }, r.name), h('text', { ...at, y: (y + 11).toFixed(1), class: 'sub halo' }, r.draining ? 'drained' : lost ? stateWord(r.state === 'fresh' ? 'down' : r.state) : 'load ' + (load === null ? dash : percent(load))));
}
