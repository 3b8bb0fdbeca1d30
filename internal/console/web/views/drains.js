// Drains in force, and the form to start and end them.
import { call } from '../api.js';
import { h, notice, table } from '../dom.js';
import { clock, count, isSet, millis, parseSpan, percent, span } from '../format.js';
import { listPaths } from '../fleet.js';

export const drains = {
  id: 'drains', title: () => 'Drains', feeds: ['status'], needs: 'status', when: (s) => s.actions.includes('drain') || s.tier === 'regional',
  render(ctx) {
    const status = ctx.live.value('status'), ui = state(ctx), list = (status && status.drains) || [], may = ctx.mayWrite && ctx.session.actions.includes('drain');
    if (!status) return [h('p', { class: 'muted' }, 'waiting for the first figures')];
    return [ui.message ? notice(ui.message, 'good') : null,
      table('Drains', [{ name: 'Path' }, { name: 'Reason', wide: 1 }, { name: 'By' }, { name: 'Since' }, { name: 'Ends in', n: 1 }, { name: 'New traffic left', n: 1 }, { name: '' }],
        list.map((d) => ({ key: d.path, cells: [d.path, d.reason || '', d.actor || '', clock(d.at), countdown(d.until), percent(trafficShare(d)), may ? h('button', { type: 'button', 'data-action': 'undrain', 'data-path': d.path }, 'End…') : ''] })), 'nothing is drained'),
      h('h2', {}, 'Drain a region, zone or worker'),
      !ctx.session.actions.includes('drain') ? h('p', { class: 'muted' }, 'This node cannot start drains: use the console of a global node.') : !ctx.mayWrite ? h('p', { class: 'muted' }, `Your role is ${ctx.session.role}: drains need the role operator.`) : form(ctx, ui, status),
      ui.error ? errorPart(ui.error) : null, ui.impact ? impactPart(ui.impact) : null];
  },
  actions: {
    // Both buttons compute the impact first; "Drain" then asks for confirmation.
    async plan(ctx, el, event) {
      const ui = state(ctx), form = el, go = event.submitter && event.submitter.value === 'drain', request = readForm(form);
      ui.message = '';
      if (typeof request === 'string') { ui.error = { message: request }; ui.impact = null; ctx.refresh(); return; }
      const dry = await attempt(ui, () => call('POST', '/v1/drains', { ...request, dry_run: true }));
      ui.impact = dry && { path: request.path, ...dry };
      ctx.refresh();
      if (!dry || !go) return;
      const existing = ((ctx.live.value('status') || {}).drains || []).find((d) => d.path === request.path);
      const yes = await ctx.confirm(h('div', {}, h('h2', {}, `Drain ${request.path}?`), h('p', {}, describe(request)), existing ? notice(`It is drained already, by ${existing.actor || 'unknown'}${existing.reason ? ': ' + existing.reason : ''}. ` + (request.replace ? 'The new drain replaces that one.' : 'Without “replace” the node refuses the new drain.')) : null, impactPart(ui.impact)), 'Drain ' + request.path, true);
      if (!yes) return;
      const done = await attempt(ui, () => call('POST', '/v1/drains', request));
      if (done) { ui.message = `${request.path} is being drained.` + (done.note ? ' ' + done.note : ''); ui.impact = null; form.reset(); ctx.ui.drainPath = ''; }
      ctx.refresh();
    },
    async undrain(ctx, el) {
      const ui = state(ctx), path = el.dataset.path, reason = h('input', { type: 'text', name: 'reason', 'aria-label': 'Reason', placeholder: 'reason, for the audit log' });
      ui.message = '';
      if (!await ctx.confirm(h('div', {}, h('h2', {}, `End the drain of ${path}?`), h('p', {}, 'New requests are sent there again.'), reason), 'End the drain', false)) return;
      const done = await attempt(ui, () => call('DELETE', '/v1/drains?' + new URLSearchParams({ path, reason: reason.value })));
      if (done) ui.message = `The drain of ${path} has ended.`;
      ctx.refresh();
    },
  },
};

const state = (ctx) => ctx.ui.drains || (ctx.ui.drains = { error: null, impact: null, message: '' });

async function attempt(ui, f) {
  try {
    const out = await f();
    ui.error = null;
    return out;
  } catch (e) {
    ui.error = e;
    return null;
  }
}

function form(ctx, ui, status) {
  const field = (name, label, attrs) => h('label', {}, label, h('input', { name, autocomplete: 'off', ...attrs }));
  return h('form', { class: 'grid', 'data-action': 'plan', 'data-key': 'drain form ' + (ctx.ui.drainPath || '') }, field('path', 'Path: region, region/zone or region/zone/worker', { required: true, list: 'paths', value: ctx.ui.drainPath || null }), h('datalist', { id: 'paths' }, listPaths(status).map((p) => h('option', { value: p }))),
    field('for', 'For (empty: until undrained)', { placeholder: '30m' }), field('over', 'Reduce traffic over (empty: at once)', { placeholder: '2m' }), field('reason', 'Reason, for the audit log', { placeholder: 'driver update' }),
    h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'replace' }), 'replace an existing drain'), h('label', { class: 'check' }, h('input', { type: 'checkbox', name: 'force' }), 'force: even below the required minimum'),
    h('button', { type: 'submit', value: 'impact' }, 'Show impact'), h('button', { type: 'submit', value: 'drain', class: 'danger' }, 'Drain…'));
}

// readForm returns the request, or a text that says what is wrong.
function readForm(form) {
  const f = new FormData(form), request = { path: f.get('path').trim() };
  for (const [name, key] of [['for', 'for_ms'], ['over', 'over_ms']]) {
    const ms = parseSpan(f.get(name));
    if (ms === null) return `“${f.get(name)}” is no duration: write one such as 90s, 30m or 2h`;
    if (ms > 0) request[key] = ms;
  }
  if (f.get('reason').trim()) request.reason = f.get('reason').trim();
  if (f.get('replace')) request.replace = true;
  if (f.get('force')) request.force = true;
  return request;
}

const describe = (r) => (r.for_ms ? `For ${span(r.for_ms)}` : 'Until undrained') + (r.over_ms ? `, traffic decreases over ${span(r.over_ms)}` : ', new traffic stops at once') + (r.reason ? `. Reason: ${r.reason}.` : '.');

function errorPart(e) {
  const conflict = e.status === 409 ? 'Conflict: ' : e.unknownOutcome ? 'Outcome unknown, see the list above: ' : 'Refused: ';
  return notice([conflict + e.message, e.hint ? h('span', { class: 'muted' }, ' (' + e.hint.replaceAll('--replace', 'the mark “replace”').replaceAll('--force', 'the mark “force”') + ')') : null], 'bad');
}

function impactPart(a) {
  const i = a.impact;
  if (!i) return h('p', { class: 'muted' }, a.note || 'The node reports no impact.');
  return h('section', { 'aria-label': 'Impact' }, h('h2', {}, 'Impact of draining ' + a.path), h('p', {}, `${i.regions_left} of ${i.regions} regions remain` + (i.zones ? `, ${i.zones_left || 0} of ${i.zones} zones of the region` : '') + '.'), a.note ? notice(a.note) : null, (i.below || []).map((t) => notice(t, 'bad')),
    table('Impact', [{ name: 'Model' }, { name: 'Workers', n: 1 }, { name: 'left', n: 1 }, { name: 'Prefill', unit: 'tok/s', n: 1 }, { name: 'left', unit: 'tok/s', n: 1 }, { name: 'Demand', unit: 'tok/s', n: 1 }, { name: 'Wait', n: 1 }, { name: 'then', n: 1 }],
      (i.models || []).map((m) => ({ key: m.name, cells: [m.name, count(m.workers), count(m.workers_left), count(m.prefill_tokens_per_second), count(m.prefill_tokens_per_second_left), count(m.demand_tokens_per_second), wait(m.wait_seconds), wait(m.wait_left_seconds)] }))));
}

const wait = (s) => (s < 0 ? h('span', { class: 'bad' }, 'demand exceeds capacity') : millis(s));

const countdown = (until) => (isSet(until) ? span(Math.max(0, Date.parse(until) - Date.now())) : 'until undrained');

function trafficShare(d) {
  return d.over_ms ? Math.max(0, Math.min(1, 1 - (Date.now() - Date.parse(d.at)) / d.over_ms)) : 0;
}
