package regional

import (
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// Directive is what a local is told now; nil when there is nothing to be told yet.
func (l *Lab) Directive(to capacity.Path) *uplink.Directive { return l.g.directiveFor(to) }

// News is another number whenever there is something new to be told to locals at once: another of them is live, or something
// else is in force.
func (l *Lab) News() uint64 {
	st := l.g.state.Load()
	n := st.directive.Index<<32 + st.directive.PlanEpoch
	if r := l.g.roster.Load(); r != nil {
		for zone, list := range *r { // in no order: a sum
			for i := range list {
				n += xxhash.Sum64String(zone + "/" + list[i].Name + "/" + list[i].Endpoint)
			}
		}
	}
	return n
}

// Resume makes a request whose stream broke off below one for the rest of its answer, after so many more tokens of it, while so
// many streams are open here; false when it may not go on. What the last attempt held is given back. Choose then.
func (l *Lab) Resume(r *LabRequest, made, open int, now time.Time) bool {
	g, q := l.g, &r.q
	l.Leave(r, openai.Usage{}, false)
	if _, allowed := q.state.spec.Resumes(q.tenant.Name); !allowed || !g.budget.Take(now) && !g.losses.Take(now, open) {
		return false
	}
	q.stream.joined = true
	q.hop.Continues, q.hop.RetriesLeft = q.hop.Continues+made, 1
	q.hop.PromptTokens += made
	q.query.PromptTokens += made
	q.query.MaxTokens = max(q.query.MaxTokens-made, 1)
	q.shun(r.c.verdict.Endpoint)
	return true
}
