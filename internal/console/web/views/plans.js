// The plan in force and the plans before it.
import { call } from '../api.js';
import { h, notice, table } from '../dom.js';
import { age, clock, count, millis, percent } from '../format.js';

export const plans = {
  id: 'plans', title: () => 'Plans', feeds: ['plan', 'plans'], needs: 'plans',
  render(ctx) {
    const plan = ctx.live.value('plan'), history = ctx.live.value('plans'), ui = ctx.ui.plans || (ctx.ui.plans = { diff: null, error: '' });
    return [
      plan ? [h('h2', {}, `Plan ${plan.epoch} in force`), h('p', {}, `${plan.reason || 'no reason recorded'}. Made ${clock(plan.made_at)} by ${plan.by || 'unknown'}, for spec v${plan.spec_version}; in force here for ${age(plan.age_ms)}.` + ((plan.without || []).length ? ' Without ' + plan.without.join(', ') + '.' : '')),
        (plan.notes || []).map((n) => notice(n)),
        plan.services.map((s) => [h('h2', {}, `${s.name} (${s.mode}), ${count(s.cells)} client areas, ${count((s.displaced || []).length)} not at their cheapest region`),
          table(s.name, [{ name: 'Region' }, { name: 'Client areas', n: 1 }, { name: 'Share of unknown', n: 1 }, { name: 'Wait', n: 1 }, { name: 'Price', unit: 'added while full', n: 1 }, { name: 'Ramp', n: 1 }], s.regions.map((r) => ({ key: r.name, cells: [r.name, count(r.cells), percent(r.spread), millis(r.wait_seconds), millis(r.price_seconds), r.ramp ? percent(r.ramp) : ''] })))])] : h('p', { class: 'muted' }, ctx.live.faults.plan || 'no plan yet'),
      h('h2', {}, 'History'),
      history ? table('History', [{ name: 'Plan', n: 1 }, { name: 'Age', n: 1 }, { name: 'Reason', wide: 1 }, { name: 'Moved', unit: 'share of clients', n: 1 }, { name: 'Moved', unit: 'areas', n: 1 }, { name: 'Cost', unit: 'per token', n: 1 }, { name: 'Cost before', unit: 'per token', n: 1 }, { name: 'Spec', n: 1 }, { name: 'By' }, { name: '' }],
        history.plans.map((p) => ({ key: String(p.epoch), cells: [p.epoch, age(p.age_ms), p.reason || '', p.first ? '' : percent(p.share_moved), p.first ? '' : count(p.cells_moved), p.cost_seconds ? millis(p.cost_seconds) : '', p.cost_before_seconds ? millis(p.cost_before_seconds) : '', 'v' + p.spec_version, p.by || '', p.first ? '' : h('button', { type: 'button', 'data-action': 'diff', 'data-epoch': p.epoch }, 'Compare')] })), 'no plan since the start of this node') : h('p', { class: 'muted' }, 'waiting'),
      ui.error ? notice(ui.error, 'bad') : null, ui.diff ? diffPart(ui.diff) : null,
    ];
  },
  actions: {
    async diff(ctx, el) {
      const ui = ctx.ui.plans, to = Number(el.dataset.epoch), all = ctx.live.value('plans').plans, at = all.findIndex((p) => p.epoch === to), from = all[at + 1];
      if (!from) return;
      try {
        ui.diff = await call('GET', `/v1/plan/diff?from=${from.epoch}&to=${to}`);
        ui.error = '';
      } catch (e) { ui.error = e.message; }
      ctx.refresh();
    },
  },
};

function diffPart(d) {
  return h('section', { 'aria-label': 'Comparison' }, h('h2', {}, `Plan ${d.from.epoch} to ${d.to.epoch}: ${d.to.reason || ''}`), d.services.length === 0 ? h('p', {}, 'No client area moves.') : null,
    d.services.map((s) => table(s.name, [{ name: 'Client area' }, { name: 'Before', wide: 1 }, { name: 'After', wide: 1 }, { name: 'Moved', n: 1 }], (s.cells || []).slice(0, 40).map((c) => ({ key: c.cell, cells: [c.cell, shares(c.from), shares(c.to), percent(c.moved)] })), s.name + ': only figures of regions differ')));
}

const shares = (list) => (list || []).map((x) => x.region + ' ' + percent(x.share)).join(', ');
