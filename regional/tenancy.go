package regional

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/tenant"
)

// takeGrant takes the leader's word on what may be spent here. Nobody who does not lead says one.
func (g *Gateway) takeGrant(x *uplink.Grant, now time.Time) {
	if x == nil || x.Boot != g.boot {
		return
	}
	grant := tenant.Grant{Term: x.Term, Number: x.Number, Hold: x.Hold, Parts: make(map[string]tenant.Part, len(x.Leases))}
	for i := range x.Leases {
		l := &x.Leases[i]
		grant.Parts[l.Tenant] = tenant.Part{Day: l.Day, Part: spec.Allowance{
			spec.Requests: l.RequestsMilli, spec.Tokens: l.TokensMilli, spec.Concurrency: l.Concurrency,
			spec.DayTokens: l.DayTokens, spec.DayMicros: l.DayMicros,
		}}
	}
	base := g.started.Add(time.Duration(min(x.Mark, uint64(capacity.MaxAmount)/1e6)) * time.Millisecond)
	g.mu.Lock()
	g.leases.Take(grant, base, now)
	g.mu.Unlock()
}

// tellUse writes into a summary what tenants use here, and by which leases. The caller holds the lock.
func (g *Gateway) tellUse(s *capacity.Summary, now time.Time) {
	if st := g.state.Load(); st.ready() {
		g.limiter.SetTerms(func(name string) (tenant.Terms, bool) {
			t := st.spec.Tenant(name)
			if t == nil {
				return tenant.Terms{}, false
			}
			return g.termsOf(st, t), true
		})
	}
	s.Uses = g.limiter.Uses(now)
	term, number, age := g.leases.Status(now)
	s.Holding = capacity.Holding{
		Term: term, Number: number, Boot: g.boot, Mark: uint64(max(now.Sub(g.started), 0) / time.Millisecond),
		AgeMillis: min(age.Milliseconds(), capacity.MaxAmount),
	}
}

// termsOf is what the spec allows a tenant here. The caller holds the lock.
func (g *Gateway) termsOf(st *state, t *spec.Tenant) tenant.Terms {
	if x, ok := st.terms[t.Name]; ok {
		return x
	}
	x := tenant.TermsOf(st.spec, t, spec.Holder{Region: g.cfg.Region, Gateway: g.cfg.Name})
	st.terms[t.Name] = x
	return x
}

// denied says which limit stood in the way.
func denied(d tenant.Denial) *openai.Error {
	if d.Code == openai.CodeQuota {
		return openai.BudgetSpent(d.Retry)
	}
	return openai.RateLimit(d.Code, d.Retry)
}

// estimate is what the request is reckoned to cost.
func (q *request) estimate() tenant.Ask {
	return tenant.Ask{Tokens: q.query.PromptTokens + q.query.MaxTokens, Micros: q.model.Price.Micros(q.query.PromptTokens, 0, q.query.MaxTokens)}
}

// cost is what it did cost.
func (q *request) cost() tenant.Ask {
	if q.model == nil {
		return tenant.Ask{Tokens: q.tokens}
	}
	return tenant.Ask{Tokens: q.tokens, Micros: q.model.Price.Micros(q.usage.Prompt, q.usage.Cached, q.usage.Completion)}
}

const (
	daysName = "budgets.json"
	// daysEvery is how often what was used of budgets is written down: so much is lost when a gateway is killed.
	daysEvery = time.Second
	maxDays   = 64 << 20
)

// keepDays writes down what was used of budgets until ctx ends, and then once more.
func (g *Gateway) keepDays(ctx context.Context) {
	if g.cfg.Dir == "" {
		return
	}
	last := g.daysKept
	tick := time.NewTicker(daysEvery)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-tick.C:
		}
		g.mu.Lock()
		days := g.limiter.Days()
		g.mu.Unlock()
		text, err := json.Marshal(days)
		if err != nil || string(text) == last {
			continue
		}
		if err := uplink.WriteWhole(filepath.Join(g.cfg.Dir, daysName), text); err != nil {
			if left, ok := g.keepFailures.Pass("budgets", "", time.Now()); ok {
				g.log.Error("what tenants have used of their budgets was not written down: a restart would forget it", telemetry.Err(err), telemetry.KeyLeftOut, left)
			}
			continue
		}
		last = string(text)
	}
}

// restoreDays reads what keepDays wrote. A file that cannot be read is reported and passed over.
func (g *Gateway) restoreDays() {
	if g.cfg.Dir == "" {
		return
	}
	days, text, err := readDays(filepath.Join(g.cfg.Dir, daysName))
	if err != nil {
		g.log.Warn("the record of budgets is unreadable and passed over: tenants begin the day anew", telemetry.Err(err))
		return
	}
	g.daysKept = string(text)
	g.limiter.Restore(days)
}

// readDays returns the record and its text.
func readDays(name string) ([]tenant.Day, []byte, error) {
	text, _, err := uplink.ReadWhole(name, maxDays)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the record of budgets: %w", err)
	}
	if text == nil {
		return nil, nil, nil
	}
	var days []tenant.Day
	if err := json.Unmarshal(text, &days); err != nil {
		return nil, nil, fmt.Errorf("reading the record of budgets: %w", err)
	}
	return days, text, nil
}
