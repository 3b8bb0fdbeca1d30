// Tenants with their limits and use.
import { h, notice, shareBar, table } from '../dom.js';
import { count, rate } from '../format.js';

export const tenants = {
  id: 'tenants', title: () => 'Tenants', feeds: ['tenants'], needs: 'tenants',
  render(ctx) {
    const a = ctx.live.value('tenants');
    if (!a) return [h('p', { class: 'muted' }, ctx.live.faults.tenants || 'waiting for the first figures')];
    const rows = [];
    for (const t of a.tenants) {
      // A limit of scope region applies in each region separately, so the fullest region counts.
      const use = (key) => (t.scope === 'global' ? t.use[key] : Math.max(0, ...t.regions.map((r) => r[key])));
      rows.push({ key: t.name, cls: 'sum', cells: [t.name, t.class, t.scope || 'region', ...pair(t.use.requests_per_minute, use('requests_per_minute'), t.requests_per_minute_limit, rate), ...pair(t.use.tokens_per_minute, use('tokens_per_minute'), t.tokens_per_minute_limit, rate), ...pair(t.use.running, use('running'), t.concurrency_limit, count), ...pair(t.use.day_tokens, t.use.day_tokens, t.tokens_per_day_limit, count), ...pair(t.use.day_dollars, t.use.day_dollars, t.dollars_per_day_limit, (v) => '$' + v.toFixed(2))] });
      if (t.regions.length > 1) for (const r of t.regions) rows.push({ key: t.name + ' ' + r.region, cls: 'sub', cells: [r.region, '', '', rate(r.requests_per_minute), '', rate(r.tokens_per_minute), '', count(r.running), '', count(r.day_tokens), '', '$' + r.day_dollars.toFixed(2), ''] });
    }
    return [(a.missing || []).length ? notice('Without the use in ' + a.missing.join(', ') + ': no current report.') : null,
      h('p', { class: 'muted' }, 'Requests and tokens per minute include refused ones. A limit of scope region applies in each region separately: its bar shows the fullest region.'),
      table('Tenants', [{ name: 'Tenant' }, { name: 'Class' }, { name: 'Scope' }, { name: 'Requests', unit: 'per minute', n: 1 }, { name: 'of limit' }, { name: 'Tokens', unit: 'per minute', n: 1 }, { name: 'of limit' }, { name: 'Running', n: 1 }, { name: 'of limit' }, { name: 'Tokens', unit: 'today', n: 1 }, { name: 'of budget' }, { name: 'Cost', unit: 'today', n: 1 }, { name: 'of budget' }], rows, 'the spec lists no tenants')];
  },
};

function pair(use, against, limit, format) {
  return [format(use), limit > 0 ? h('span', {}, shareBar(against / limit, `${Math.round((against / limit) * 100)} % of ${format(limit)}`), ' ' + format(limit)) : h('span', { class: 'muted' }, 'unlimited')];
}
