// The explainer: which decisions a request would meet now.
import { call } from '../api.js';
import { h, notice, table } from '../dom.js';
import { millis } from '../format.js';
import { listModels } from '../fleet.js';

export const explain = {
  id: 'explain', title: () => 'Explain', feeds: ['status'], needs: 'status', action: 'explain',
  render(ctx) {
    const ui = ctx.ui.explain || (ctx.ui.explain = { records: null, error: null, asked: '' }), models = listModels(ctx.live.value('status'));
    const field = (name, label, attrs) => h('label', {}, label, h('input', { name, autocomplete: 'off', ...attrs }));
    return [h('p', { class: 'muted' }, 'Explains the decisions that a request would meet now, without sending one.'),
      h('form', { class: 'grid', 'data-action': 'ask' }, field('from', 'Client address', { required: true, placeholder: '198.51.100.10' }), field('model', 'Model or alias', { required: true, list: 'models' }), h('datalist', { id: 'models' }, models.map((m) => h('option', { value: m }))),
        field('tenant', 'Tenant', {}), h('label', {}, 'Class', h('select', { name: 'class' }, ['', 'interactive', 'standard', 'batch'].map((c) => h('option', { value: c }, c || 'of the tenant')))), field('prompt_tokens', 'Prompt tokens', { type: 'number', min: 0, inputmode: 'numeric' }), field('max_tokens', 'Output tokens at most', { type: 'number', min: 0, inputmode: 'numeric' }), h('button', { class: 'primary', type: 'submit' }, 'Explain')),
      ui.error ? notice(ui.error.message + (ui.error.hint ? ' (' + ui.error.hint + ')' : ''), 'bad') : null,
      ui.records ? [h('p', { class: 'muted' }, ui.asked), ui.records.map((r, i) => recordPart(r, i))] : null];
  },
  actions: {
    async ask(ctx, form) {
      const f = new FormData(form), q = { from: f.get('from').trim(), service: '', model: f.get('model').trim() }, ui = ctx.ui.explain;
      for (const k of ['tenant', 'class']) if (f.get(k).trim()) q[k] = f.get(k).trim();
      for (const k of ['prompt_tokens', 'max_tokens']) if (f.get(k)) q[k] = Number(f.get(k));
      try {
        ui.records = (await call('POST', '/v1/explain', q)).records;
        ui.error = null;
        ui.asked = `${q.model} from ${q.from}, as of ${new Date().toISOString().slice(11, 19)} UTC`;
      } catch (e) { ui.error = e; ui.records = null; }
      ctx.refresh();
    },
  },
};

function recordPart(r, i) {
  const names = [...new Set((r.candidates || []).flatMap((c) => (c.terms || []).map((t) => t.name)))];
  const sum = (c) => (c.terms || []).reduce((s, t) => s + t.seconds, 0);
  const list = [...(r.candidates || [])].sort((a, b) => (a.dropped ? 1 : 0) - (b.dropped ? 1 : 0) || sum(a) - sum(b)).slice(0, 60);
  return h('section', { 'data-key': 'record ' + i }, h('h2', {}, `${r.tier} ${r.node}: ${r.chosen || 'nothing'} (${r.reason || 'no eligible candidate'})`), h('p', { class: 'muted' }, [r.query, r.policy && 'policy ' + r.policy].filter(Boolean).join('; ')),
    list.length ? table(r.tier, [{ name: 'Candidate' }, { name: 'Cost', n: 1 }, ...names.map((n) => ({ name: n, n: 1 })), { name: 'Verdict', wide: 1 }], list.map((c) => ({ key: c.name, cls: c.name === r.chosen ? 'sum' : c.dropped ? 'old' : null, cells: [c.name, (c.terms || []).length ? millis(sum(c)) : '', ...names.map((n) => { const t = (c.terms || []).find((x) => x.name === n); return t ? millis(t.seconds) : ''; }), c.dropped ? 'ineligible: ' + c.dropped : c.name === r.chosen ? 'chosen' : '' ] }))) : null,
    (r.notes || []).length ? h('ul', {}, r.notes.map((n) => h('li', {}, n))) : null);
}
