package local

import "time"

// unsure is the part of what stood before a first token that must be beyond doubt for its time to tell how fast the worker is.
const unsure = 0.2

// timed learns from the time to a stream's first token how fast its worker is. Where most of the prompt was believed to be
// cached that waits for the answer's end, where the engine says how much was: a miss takes as long as ten hits, and a worker
// that is believed ten times as slow for it is sent nothing of what it holds.
func (at *attempt) timed(now time.Time) {
	if full := at.worked(0); at.worker.cachedOK && full-at.worked(at.choice.Cached) > unsure*at.work {
		at.untold = true
		return
	}
	at.worker.learner.FirstToken(at.work, now.Sub(at.sent).Seconds())
}

// retimed learns what timed could not, now that the engine has said how long the prompt was and how much of it was cached,
// in tokens. Both are its own count: a cached part that is subtracted from an estimate of the whole would make the rest a
// multiple of what was computed.
func (at *attempt) retimed(prompt, cached int64) {
	if !at.untold {
		return
	}
	at.untold = false
	work := at.work - at.worked(at.choice.Cached) + at.workOf(prompt, cached)
	at.worker.learner.FirstToken(max(work, 1), at.first.Sub(at.sent).Seconds())
}

// settle learns at the answer's end what timed could not where nobody has said how many tokens were cached: as many as were
// believed. A slow worker is known by such answers too, and its clients are those that leave before the end.
func (at *attempt) settle() { at.retimed(at.visit.query.PromptTokens, at.choice.Cached) }

// worked is what the attempt's prompt takes of which so much is cached, in tokens: see pick.Rates.Work.
func (at *attempt) worked(cached int64) float64 {
	return at.workOf(at.visit.query.PromptTokens, cached)
}

// workOf is worked for a prompt of another length.
func (at *attempt) workOf(prompt, cached int64) float64 {
	rates := at.worker.learner.Rates()
	return float64(rates.Work(prompt, min(cached, prompt)))
}
