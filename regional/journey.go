package regional

import (
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/regional/zone"
)

// journey is a request on its way through places, until its answer has ended. An answer may be followed: then the handler
// returns, and the journey goes on when that has its end.
type journey struct {
	g    *Gateway
	w    http.ResponseWriter
	r    *http.Request
	q    *request
	over func() // counts the request out

	last     relay.Result
	try      int
	text     *resume.Seam // what is kept of the answer
	followed bool
}

// pause settles a journey, unless its answer is followed. It is for defer.
func (j *journey) pause() {
	if j.followed {
		return
	}
	j.g.vault.Release(j.text)
	defer j.over()
	j.g.endTrial(j.q)
	j.g.settle(j.q)
}

// dispatch chooses a place, forwards, and tries once elsewhere when nothing had begun.
func (j *journey) dispatch() {
	if e := j.g.admitSuspect(j.q); e != nil {
		j.g.refuse(j.w, j.q, e)
		return
	}
	j.g.follow(j.q)
	j.text = j.q.stream.seam
	j.proceed()
}

// proceed makes attempts until the answer has come to its end, or is followed.
func (j *journey) proceed() {
	g, w, q := j.g, j.w, j.q
	for ; ; j.try++ {
		c, ok := g.place(w, q)
		g.metrics.heldBack(q, &c.verdict)
		if !ok && q.stream.joined {
			g.breakOff(w, q, c, j.last, resumeFailed, resume.NoPlace)
			return
		}
		if !ok {
			g.giveUp(w, q, j.last, j.try)
			return
		}
		if d := q.hop.Deadline; d > 0 && !q.stream.joined && c.verdict.Reason != zone.ReasonCold && c.verdict.Seconds > (d-time.Since(q.arrived)).Seconds() {
			g.release(c)
			g.refuse(w, q, openai.DeadlineUnmeetable("regional"))
			return
		}
		res := g.attempt(w, j.r, q, c, func(res relay.Result) { j.goOn(c, res) })
		if j.followed = res.Followed; j.followed {
			return
		}
		if !j.arrived(c, res) {
			return
		}
	}
}

// goOn takes the journey up again when an answer that was followed has ended.
func (j *journey) goOn(c choice, res relay.Result) {
	j.followed = false
	defer j.pause()
	if j.arrived(c, res) {
		j.try++
		j.proceed()
	}
}

// arrived accounts for an attempt, and says whether there is to be another.
func (j *journey) arrived(c choice, res relay.Result) (another bool) {
	g, q := j.g, j.q
	j.last = res
	q.spilled = c.verdict.Spilled()
	q.heed(&j.last)
	g.learnDeaths(q, &res)
	switch {
	case res.Cut:
		if !g.resume(j.w, q, c, res) {
			return false
		}
		j.try = -1
		return true
	case g.judged(q, c, res, time.Now()), q.moved(c, &j.last):
		j.try--
		return true
	}
	if !res.Retryable || j.try > 0 || q.hop.RetriesLeft == 0 || q.hop.Deaths > 1 || g.ending.Load() || !(q.paid || g.mayRetry()) {
		g.end(j.w, q, c, res)
		return false
	}
	q.retried = retryReason(res)
	q.hop.RetriesLeft = 0
	q.shun(c.verdict.Endpoint)
	g.metrics.retries.WithLabelValues(q.retried).Inc()
	return true
}
