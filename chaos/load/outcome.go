package load

import "time"

// RequestOutcome is the outcome of one request.
type RequestOutcome struct {
	// Due is when the request should have been sent, First when its first token arrived (zero for none), Done when it
	// ended.
	Due, First, Done time.Time
	// Kind is "ok", "refused", "cut", "lost", "nowhere" or "abandoned", as in Report.
	Kind string
	// Status and Code of a refusal or a cut.
	Status int
	Code   string
	// Route is the origin of the answer, region/zone/worker; empty if unknown.
	Route string
	// Prompt and Output are the answer's token counts.
	Prompt, Output int
}

func (g *Generator) reportOutcome(r *requestResult, due, now time.Time) {
	if g.cfg.OnOutcome == nil {
		return
	}
	g.cfg.OnOutcome(RequestOutcome{
		Due: due, First: r.firstToken, Done: now, Kind: r.outcome.String(), Status: r.status, Code: r.code, Route: r.route,
		Prompt: r.promptTokens, Output: r.outputTokens,
	})
}

func (g *Generator) recordOutcome(number uint64, r *requestResult, due, now time.Time) {
	if g.cfg.Recorder == nil {
		return
	}
	d := RecordedOutcome{Kind: r.outcome.String(), Route: r.route, End: now.Sub(due), Output: r.outputTokens, Cached: r.cachedTokens}
	if !r.firstToken.IsZero() {
		d.First = r.firstToken.Sub(due)
	}
	g.cfg.Recorder.RecordOutcome(number, d)
}
