package regional

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/lifetime"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/regional/zone"
)

const (
	// peerAdmission is how long a peer may take to admit a request before its body is sent all the same.
	peerAdmission = 500 * time.Millisecond
	// askFrom is the body size from which a peer is asked first. What is smaller fits a new connection's first flight, so that
	// asking would cost a round trip and save nothing; the peer judges it by the same headers before it reads the body, and
	// its refusal says as much: not started.
	askFrom = 16 << 10
)

// attempt forwards the request to one place and accounts for it.
// Where the answer is followed, later is told how it went.
func (g *Gateway) attempt(w http.ResponseWriter, r *http.Request, q *request, c choice, later func(relay.Result)) (res relay.Result) {
	p := &passage{g: g, q: q, c: c}
	hop := q.hop
	forwarder := g.locals
	if c.verdict.Spilled() {
		forwarder = g.peers
		spillHop(&hop, q, &c.verdict)
	} else {
		hop.Ticket = relay.Ticket{Parent: g.cfg.Name, Boot: g.boot, N: c.ticket}
	}
	if hop.Deadline > 0 {
		hop.Deadline = max(hop.Deadline-time.Since(q.arrived), time.Millisecond)
	}
	g.beside(r.Context(), p)
	defer func() {
		if !res.Followed {
			p.ctx.End(nil)
			p.finish()
		}
	}()
	g.depart(p, p.ctx.End)
	req, err := relay.OutboundAs(&p.ctx, r, "https://"+c.verdict.Endpoint+q.path, q.body, &hop)
	if err != nil {
		return relay.Result{Err: err}
	}
	if c.verdict.Spilled() && q.query.Asks {
		req.Header.Set("Expect", "100-continue")
	}
	opts := relay.Options{HideUsage: q.hop.AskUsage && !q.peer, Seam: q.stream.seam, Joined: q.stream.joined, Progress: p}
	if q.peer && !q.stream.joined && !g.cfg.NoFast {
		p.above = w
	}
	opts.Later = func(res relay.Result) {
		g.passed(w, p, &res)
		p.ctx.End(nil)
		p.finish()
		later(res)
	}
	if res = forwarder.ForwardAs(&p.ctx, w, req, p, opts); !res.Followed {
		g.passed(w, p, &res)
	}
	return res
}

// passed learns how an attempt went.
func (g *Gateway) passed(w http.ResponseWriter, p *passage, res *relay.Result) {
	q, c := p.q, p.c
	if res.Status == 0 && res.Retryable && !res.GivenUp() && !outrun(res.Err) {
		g.suspect(c.verdict.Endpoint)
	}
	p.res = res
	if q.stream.joined && res.Started && res.Err == nil {
		relay.MarkResumed(w, tierName)
		g.metrics.resumes.WithLabelValues(resumeResumed, "").Inc()
	}
}

// passage watches one answer pass.
type passage struct {
	ctx    lifetime.Context // the attempt's
	g      *Gateway
	q      *request
	c      choice
	res    *relay.Result
	events bool
	begun  bool
	status int
	stream openai.StreamMeter
	body   openai.BodyMeter

	place  *place
	cancel context.CancelCauseFunc
	sent   time.Time
	query  zone.Query   // that finds another place beside this one
	doomed bool         // it was given up and is about to end
	heard  atomic.Int64 // as in place

	delivered atomic.Bool         // the whole request was sent
	queued    atomic.Bool         // the tier below holds it in a queue, and no worker has it
	above     http.ResponseWriter // reports its progress to the gateway that sent it; nil where none did
}

// Head puts our own headers over those of the tier below.
func (p *passage) Head(resp *http.Response, out http.Header) {
	p.status = resp.StatusCode
	if p.q.told = toldDeaths(resp.Header); p.q.told > 0 && p.q.peer {
		out.Set(relay.HeaderDeaths, strconv.Itoa(p.q.told))
	}
	p.events = strings.HasPrefix(relay.First(resp.Header, "Content-Type"), "text/event-stream")
	values := make([]string, 1, 2) // one piece of memory for both
	values[0] = p.q.hop.RequestID
	out[relay.HeaderXRequestID] = values[:1:1]
	if relay.First(out, relay.HeaderRoute) == "" {
		values = append(values, p.c.verdict.Path.String())
		out[relay.HeaderRoute] = values[1:]
	}
	if !p.q.hop.TellEndpoint {
		delete(out, relay.HeaderServedEndpoint)
	}
	out.Add(relay.HeaderServerTiming, "admit;dur="+millis(p.q.admitted.Sub(p.q.arrived))+
		`, zone;desc="`+p.c.verdict.Path.String()+`";dur=`+millis(time.Since(p.q.admitted)))
}

func millis(d time.Duration) string {
	return strconv.FormatFloat(max(d, 0).Seconds()*1000, 'f', 1, 64)
}

// Chunk counts a piece of the answer. The first one says that the prompt is prefilled.
func (p *passage) Chunk(b []byte) {
	now := int64(time.Since(p.g.started))
	p.heard.Store(now)
	p.place.heard.Store(now)
	if !p.begun {
		p.begun = true
		p.q.letGo()
		p.g.mu.Lock()
		p.g.ledger.Prefilled(p.c.verdict.Path, p.c.ticket)
		p.g.mu.Unlock()
		if !p.q.stream.joined {
			p.g.metrics.firstByte(p.q)
		}
		p.g.outcome(p.q, p.status, time.Since(p.q.arrived))
	}
	if p.events {
		p.stream.Chunk(b)
	} else {
		p.body.Chunk(b)
	}
}

// finish takes the attempt out of the ledger and learns what it used.
func (p *passage) finish() {
	u := p.account()
	g := p.g
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ledger.Finish(p.c.verdict.Path, p.c.ticket)
	g.land(p)
	if p.whole() && !p.q.stream.joined {
		g.told(p.q, &p.c, &u)
	}
	if p.res == nil || !p.res.Cut { // of a stream that was cut the whole is counted, once
		g.used(p.q, &u, u.Stated || p.stream.Done)
	}
}

// whole says that the answer came to its end.
func (p *passage) whole() bool {
	if p.events {
		return p.stream.Done
	}
	return p.res != nil && p.res.Err == nil && !p.res.Truncated && p.res.Status/100 == 2
}

// used books what an answer used, once for each request. The prompt of one that goes on with another place's answer was
// counted there. The caller holds the lock.
func (g *Gateway) used(q *request, u *openai.Usage, whole bool) {
	q.tokens, q.usage = u.Prompt+u.Completion, *u
	if whole {
		g.demand.learn(q.query.Model, u.Completion/max(q.env.N, 1))
	}
	if q.stream.guest {
		u.Prompt, u.Cached = 0, 0
	}
	g.metrics.used(q, u)
}

// account is what the answer used; nothing for one that is an error. A client that leaves before the first byte uses the
// prompt that a worker has begun to read.
func (p *passage) account() openai.Usage {
	q := p.q
	switch {
	case p.abandoned():
		q.abandoned = true
		return openai.Usage{Prompt: q.query.PromptTokens}
	case p.res == nil || p.res.Status/100 != 2:
		return openai.Usage{}
	case q.stream.joined && !p.res.Started:
		return openai.Usage{} // who breaks it off counts what there was
	case q.stream.joined:
		return q.stream.seam.Usage(q.stream.prompt)
	case p.events:
		return p.stream.Account(p.q.query.PromptTokens)
	case q.kind != relay.Usual: // as an inference over HTTP is: taken for text of its length
		return p.body.Account(max(q.query.PromptTokens, int(float64(q.source.Total())/q.model.BytesPerToken)), 0)
	}
	return p.body.Account(q.query.PromptTokens, q.shape.Output(&q.env, q.query.MaxTokens, p.body.Bytes, q.model.BytesPerToken))
}
