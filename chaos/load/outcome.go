package load

import "time"

// Outcome is what came of one request.
type Outcome struct {
	// Due is when the request should have left, First when its first token came (zero for none), Done when it was over.
	Due, First, Done time.Time
	// Verdict is "ok", "refused", "cut", "lost", "nowhere" or "abandoned", as in Report.
	Verdict string
	// Status and Code of a refusal or a cut.
	Status int
	Code   string
	// Route is where the answer says that it comes from: region/zone/worker; empty where it does not.
	Route string
	// Prompt and Output are the answer's tokens.
	Prompt, Output int
}

func (g *Generator) tell(r *result, due, now time.Time) {
	if g.cfg.OnOutcome == nil {
		return
	}
	g.cfg.OnOutcome(Outcome{
		Due: due, First: r.first, Done: now, Verdict: r.verdict.String(), Status: r.status, Code: r.code, Route: r.route,
		Prompt: r.prompt, Output: r.output,
	})
}

func (g *Generator) record(number uint64, r *result, due, now time.Time) {
	if g.cfg.Record == nil {
		return
	}
	d := Did{Verdict: r.verdict.String(), Route: r.route, End: now.Sub(due), Output: r.output, Cached: r.cached}
	if !r.first.IsZero() {
		d.First = r.first.Sub(due)
	}
	g.cfg.Record.Over(number, d)
}
