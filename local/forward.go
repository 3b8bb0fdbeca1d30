package local

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/resume"
)

// retryBurst bounds the retries that may be saved up: a worker that dies takes all its waiting answers with it at once.
const retryBurst = 64

// serve binds a visit to a worker, relays the answer, and tries once more elsewhere when nothing has reached the client.
func (a *Agent) serve(w http.ResponseWriter, v *visit) {
	if refusal := a.floor.admitSuspect(v); refusal != nil {
		a.leave(v)
		a.tellDeaths(w, v)
		a.refuse(w, v, refusal, true)
		return
	}
	a.floor.earn()
	if !a.cfg.Plain {
		v.above.w = w
	}
	a.proceed(w, v, false)
}

// proceed makes attempts until one has come to its end, or is followed: then that is dealt with when it has.
func (a *Agent) proceed(w http.ResponseWriter, v *visit, begun bool) {
	followed := false
	defer func() {
		if !followed {
			a.leave(v)
		}
	}()
	for {
		at, refusal := a.enter(v.r.Context(), v)
		if refusal != nil {
			switch {
			case v.stream.joined:
				a.breakOff(w, v, resumeFailed, resume.NoPlace)
			case v.r.Context().Err() == nil:
				a.refuse(w, v, refusal, begun)
			}
			return
		}
		before := begun
		at, res := a.send(w, v, at, func(at *attempt, res *relay.Result) {
			if goOn, begun := a.attempted(w, v, at, res, before); goOn {
				a.proceed(w, v, begun)
			} else {
				a.leave(v)
			}
		})
		if followed = res.Followed; followed {
			return
		}
		var goOn bool
		if goOn, begun = a.attempted(w, v, at, &res, begun); !goOn {
			return
		}
	}
}

// leave gives back what a visit holds, when it is over.
func (a *Agent) leave(v *visit) {
	a.vault.Release(v.stream.seam)
	v.charge.Release()
	a.floor.endTrial(v)
}

// attempted says whether another attempt is to be made after one, and whether one has begun that failed; otherwise the
// visit is over.
func (a *Agent) attempted(w http.ResponseWriter, v *visit, at *attempt, res *relay.Result, begun bool) (goOn, failed bool) {
	v.exclude(at.choice.ID)
	if at.died {
		a.logDeath(v, at)
	}
	if at.died && v.fate == poison.Condemned {
		a.condemn(w, v, res)
		return false, begun
	}
	if res.Retryable && v.retries > 0 && a.floor.spend(v, time.Now()) {
		v.retries--
		a.meters.retries.Inc()
		return true, true
	}
	if res.Cut {
		return a.resume(w, v, res), begun
	}
	a.finish(w, v, res, begun)
	return false, begun
}

// finish answers for what the relay could not. A second try that this zone could not make is handed back to the gateway.
func (a *Agent) finish(w http.ResponseWriter, v *visit, res *relay.Result, begun bool) {
	a.lost(v, res)
	switch {
	case v.stream.joined && res.Retryable:
		a.breakOff(w, v, resumeFailed, resume.NoPlace)
	case res.Truncated && !res.Events:
		relay.Abort()
	case res.Err == nil || res.Started || res.ClientGone:
	case res.Refused != nil:
		full := !res.NotStarted && relay.Overloaded(res.Refused.Status)
		if full {
			a.floor.hintRetry(v, res.Refused.Header, time.Now())
		}
		res.Refused.Write(w, full && !a.cfg.Plain && v.retries > 0)
	default:
		e := openai.Upstream("the worker could not be reached or broke before it answered")
		a.meters.refused(e)
		if v.hop.RequestID != "" {
			w.Header().Set(relay.HeaderXRequestID, v.hop.RequestID)
		}
		a.tellDeaths(w, v)
		if !a.cfg.Plain && (v.retries > 0 || !begun && unreachable(res.Err)) {
			relay.WriteNotStarted(w, e)
			return
		}
		relay.WriteError(w, e)
	}
}

// errRequest means that the request to a worker could not be built, which says nothing of the worker.
var errRequest = errors.New("building the request to the worker")

// hintRetry completes the head of a worker's own refusal as refusals of ours have it: when to come back, by the worker's
// word or else by the queue, and that another try may help.
func (f *floor) hintRetry(v *visit, h http.Header, now time.Time) {
	if h.Get("X-Should-Retry") == "" {
		h.Set("X-Should-Retry", "true")
	}
	if h.Get("Retry-After") != "" {
		return
	}
	f.mu.Lock()
	after := time.Duration(0)
	if p := f.pools[v.model]; p != nil {
		after = p.queue.RetryAfter(v.flow(), v.class, now)
	}
	f.mu.Unlock()
	after = openai.NoCapacity(v.model, after).Retry()
	h.Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	h.Set("Retry-After-Ms", strconv.FormatInt(after.Milliseconds(), 10))
}

// exclude remembers a worker that failed this visit.
func (v *visit) exclude(id int32) {
	v.excluded[0], v.excluded[1] = id, v.excluded[0]
	v.shun()
}

// attempt forwards a visit to one worker and books how it went. What reaches the client must be claimed first. Where later
// is set, that may be told it in the end instead.
func (a *Agent) attempt(ctx context.Context, w http.ResponseWriter, v *visit, at *attempt, claim func() bool, later func(*relay.Result)) (res relay.Result) {
	m := &meter{agent: a, at: at}
	m.ctx.Begin(ctx)
	stop := func() {}
	defer func() {
		if !res.Followed {
			stop()
			m.ctx.End(nil)
		}
	}()
	a.floor.begin(at, m.ctx.End)
	if !v.env.Stream {
		after := time.Duration(1.5*at.choice.Seconds*float64(time.Second)) + 50*time.Millisecond
		foretold := a.floor.foretell(at, after)
		stop = foretold.stop
	}
	body, opts := a.wording(v, at.worker)
	opts.Claim, opts.Seam, opts.Joined = claim, v.stream.seam, v.stream.joined
	if later != nil {
		opts.Later = func(res relay.Result) {
			stop()
			m.ctx.End(nil)
			a.booked(w, v, at, m, &res)
			later(&res)
		}
	}
	req, err := relay.OutboundAs(&m.ctx, v.r, at.worker.declared.URL+target(v.r.URL), body, nil)
	if err == nil && v.trial {
		req.GetBody = nil // the transport must not send it twice
	}
	if err != nil {
		res = relay.Result{Err: errors.Join(errRequest, err)}
	} else {
		res = a.forward.ForwardAs(&m.ctx, w, req, m, opts)
	}
	if !res.Followed {
		a.booked(w, v, at, m, &res)
	}
	return res
}

// booked books how an attempt went.
func (a *Agent) booked(w http.ResponseWriter, v *visit, at *attempt, m *meter, res *relay.Result) {
	m.sign(res)
	a.floor.end(at, m, res, time.Now())
	switch {
	case v.stream.joined && !res.Started && res.ClientGone:
		a.account(v)
	case res.Cut || !res.Started || res.Status/100 != 2:
	case v.stream.joined:
		a.account(v)
		if res.Err == nil {
			a.meters.resume(resumeResumed, resume.None)
			relay.MarkResumed(w, tierName)
		}
	default:
		a.charge(v, m.account())
	}
	rejected := res.Err == nil && res.Status == http.StatusUnauthorized // our credentials: the client's never get there
	if rejected {
		at.worker.stale.Store(true) // its list of models shows whether it still lets us in
	}
	if rejected || res.Err != nil && !res.ClientGone && !res.Outrun {
		select {
		case at.worker.look <- struct{}{}:
		default:
		}
	}
}

// target is what a worker is asked for: the path, and the query as the client wrote it (some engines want api-version).
func target(u *url.URL) string {
	if u.RawQuery == "" {
		return u.EscapedPath()
	}
	return u.EscapedPath() + "?" + u.RawQuery
}
