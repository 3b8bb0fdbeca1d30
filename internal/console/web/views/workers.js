// Regions, zones and workers as a tree with a heat map.
import { h } from '../dom.js';
import { age, clock, count, isSet, percent, stateClass, stateWord } from '../format.js';
import { healthOf, kvUse, level, levelNames, sums } from '../fleet.js';

// manyWorkers is the number above which zones show their workers only once they are opened.
const manyWorkers = 1500;

const colours = {
  kv: ['KV cache use', (w) => kvUse(w.kv_free_tokens, w.kv_total_tokens)],
  waiting: ['Waiting requests', (w) => Math.min(1, w.waiting / 8)],
  running: ['Running requests, of the most', (w, most) => (most > 0 ? w.running / most : 0)],
};

export const workers = {
  id: 'workers', title: () => 'Workers', feeds: ['status'], needs: 'status',
  render(ctx) {
    const status = ctx.live.value('status');
    if (!status) return [h('p', { class: 'muted' }, 'waiting for the first figures')];
    const all = status.regions.flatMap((r) => (r.zones || []).flatMap((z) => z.workers || []));
    const ui = ctx.ui.workers || (ctx.ui.workers = { colour: 'kv', selected: null, opened: new Set(), filter: '' });
    const most = all.reduce((m, w) => Math.max(m, w.running), 0);
    return [
      h('div', { class: 'tools' }, h('label', {}, 'Colour ', h('select', { 'data-action': 'colour' }, Object.entries(colours).map(([k, [name]]) => h('option', { value: k, selected: ui.colour === k }, name)))),
        h('label', {}, 'Filter ', h('input', { type: 'search', 'data-action': 'filter', placeholder: 'name, model or state', size: 18 })), h('span', { class: 'muted' }, all.length + ' workers')),
      h('div', { class: 'legend' }, levelNames.map(([l, name]) => h('span', {}, h('span', { class: 'key b' + l }), name)), h('span', {}, 'red border: not ready')),
      h('div', { class: 'split' }, h('div', {}, status.regions.filter((r) => (r.zones || []).length).map((r) => regionPart(ctx, ui, r, all.length, most))), h('aside', { class: 'detail', 'aria-live': 'off' }, workerDetail(ctx, ui, status))),
    ];
  },
  actions: {
    colour(ctx, el) { ctx.ui.workers.colour = el.value; },
    filter(ctx, el) { ctx.ui.workers.filter = el.value.toLowerCase(); },
    worker(ctx, el) { ctx.ui.workers.selected = el.dataset.path; },
    zone(ctx, el) { const o = ctx.ui.workers.opened; if (!o.delete(el.dataset.path)) o.add(el.dataset.path); },
    drainPath(ctx, el) { ctx.ui.drainPath = el.dataset.path; location.hash = '#drains'; },
  },
};

function regionPart(ctx, ui, r, total, most) {
  const [health, cls] = r.draining && r.state === 'fresh' ? ['drained', 'warn'] : healthOf(r.state, r.models);
  return h('section', { 'data-key': r.name }, h('h2', {}, r.name + ' ', h('span', { class: cls }, health), h('span', { class: 'muted' }, ` ${stateWord(r.state)}, report ${age(r.age_ms)} old`)), r.note ? h('p', { class: 'muted' }, r.note) : null,
    r.zones.map((z) => zonePart(ctx, ui, r, z, total, most)));
}

function zonePart(ctx, ui, r, z, total, most) {
  const path = r.name + '/' + z.name, key = path + '/' + z.instance, s = sums(z.models), list = z.workers || [];
  const shown = list.filter((w) => !ui.filter || (w.name + ' ' + (w.models || []).join(' ') + ' ' + stateWord(w.state) + ' ' + (w.gpu || '')).toLowerCase().includes(ui.filter));
  const open = total <= manyWorkers || ui.opened.has(key);
  return h('div', { class: 'zone', 'data-key': key }, h('h3', {}, h('strong', {}, 'zone ' + z.name), h('span', { class: 'muted' }, ` ${z.instance || 'no instance'} · `), h('span', { class: stateClass(z.state) }, stateWord(z.state)), h('span', { class: 'muted' }, `${z.draining ? ', draining' : ''} · ${s.ready}/${s.total} ready · ${count(s.running)} running · ${count(s.queued)} queued · KV ${percent(kvUse(s.kvFree, s.kvTotal))}`),
    total > manyWorkers ? h('button', { type: 'button', 'data-action': 'zone', 'data-path': key, 'aria-expanded': String(open) }, open ? 'Hide workers' : 'Show workers') : null),
  z.note ? h('p', { class: 'muted' }, z.note) : null,
  open ? h('div', { class: 'heat' }, shown.map((w) => {
    const share = colours[ui.colour][1](w, most), full = path + '/' + w.name, down = w.state !== 'ready';
    return h('button', { type: 'button', 'data-key': full, 'data-action': 'worker', 'data-path': full, class: 'b' + (down ? 'n' : level(share)) + (down && w.state !== 'draining' ? ' down' : ''), 'aria-pressed': String(ui.selected === full), title: `${w.name}: ${stateWord(w.state)}, KV ${percent(kvUse(w.kv_free_tokens, w.kv_total_tokens))}, ${w.running} running, ${w.waiting} waiting`, 'aria-label': `${w.name}, ${stateWord(w.state)}` }, ui.colour === 'kv' ? (down ? '×' : Math.round((share || 0) * 100)) : ui.colour === 'running' ? w.running : w.waiting);
  })) : null);
}

function workerDetail(ctx, ui, status) {
  if (!ui.selected) return h('p', { class: 'muted' }, 'Choose a worker to see its figures.');
  const [region, zone, ...rest] = ui.selected.split('/'), name = rest.join('/');
  const z = status.regions.filter((r) => r.name === region).flatMap((r) => r.zones || []).filter((x) => x.name === zone), w = z.flatMap((x) => x.workers || []).find((x) => x.name === name);
  if (!w) return h('p', { class: 'muted' }, ui.selected + ' is not in the last report.');
  const facts = [['State', h('span', { class: stateClass(w.state) }, stateWord(w.state))], ['Reason', w.reason], ['Last error', w.last_error && `${w.last_error} (${w.attempts || 0} attempts)`], ['Since', isSet(w.since) && clock(w.since)], ['Address', h('code', {}, w.url)], ['GPU', w.gpu], ['Engine', w.engine], ['Source', w.source], ['Models', (w.models || []).join(', ')],
    ['Other models', w.model_states && Object.entries(w.model_states).map(([m, s]) => m + ' (' + s + ')').join(', ')], ['Running', count(w.running)], ['Waiting', count(w.waiting)], ['In flight', count(w.in_flight)], ['KV use', percent(kvUse(w.kv_free_tokens, w.kv_total_tokens))], ['KV free', count(w.kv_free_tokens) + ' of ' + count(w.kv_total_tokens) + ' tok'], ['KV overcommit', w.kv_overcommit && percent(w.kv_overcommit)],
    ['Backlog', count(w.backlog_tokens) + ' tok'], ['Prefill rate', count(w.prefill_tokens_per_second) + ' tok/s'], ['Decode rate', count(w.decode_tokens_per_second) + ' tok/s'], ['Prefix index', w.prefix_index], ['Metrics age', age(w.scrape_age_ms)]];
  return [h('h2', {}, ui.selected), h('dl', {}, facts.filter(([, v]) => v).map(([k, v]) => [h('dt', {}, k), h('dd', {}, v)])), ctx.mayWrite && ctx.session.actions.includes('drain') ? h('p', {}, h('button', { type: 'button', 'data-action': 'drainPath', 'data-path': ui.selected }, 'Drain this worker…')) : null];
}
