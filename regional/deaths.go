package regional

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/relay"
)

// admitSuspect refuses a request under which workers have died, unless it is the one further attempt that a suspect has.
func (g *Gateway) admitSuspect(q *request) *openai.Error {
	q.print = poison.Fingerprint(g.printSeed, q.tenant.Name, q.model.Name, q.raw)
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if q.hop.Deaths > 0 {
		g.deaths.Raise(q.print, poison.Suspect, now)
	}
	var ok bool
	q.trial, ok = g.deaths.Try(q.print, now)
	q.hop.Deaths = deathsOf(g.deaths.Verdict(q.print, now))
	switch {
	case ok:
		return nil
	case q.hop.Deaths > 1:
		return openai.RequestKillsWorkers(poison.Keep)
	}
	return openai.RequestSuspected()
}

// deathsOf is how a verdict is told to other tiers.
func deathsOf(v poison.Verdict) int {
	switch v {
	case poison.Suspect:
		return 1
	case poison.Condemned:
		return 2
	}
	return 0
}

// endTrial ends a further attempt, if the request is one.
func (g *Gateway) endTrial(q *request) {
	if !q.trial {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	q.trial = false
	g.deaths.EndTrial(q.print)
}

// learnDeaths remembers what a zone or a peer says of workers that died under the request.
func (g *Gateway) learnDeaths(q *request, res *relay.Result) {
	if q.print == 0 {
		return
	}
	n := q.told
	if res.Refused != nil {
		n = max(n, toldDeaths(res.Refused.Header))
	}
	if s := q.stream.seam; s != nil {
		n = max(n, eventDeaths(s.Failure()), eventDeaths(s.Declined()))
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case n >= 2:
		g.deaths.Raise(q.print, poison.Condemned, now)
	case n == 1:
		g.deaths.Raise(q.print, poison.Suspect, now)
	case res.Err == nil && res.Status > 0 && res.Status < 500:
		g.deaths.Survived(q.print)
		return
	}
	v := g.deaths.Verdict(q.print, now)
	if q.hop.Deaths = deathsOf(v); v == poison.Suspect && !q.trial {
		g.deaths.BeginTrial(q.print)
		q.trial = true
	}
}

// toldDeaths is how many workers have died under a request by the head of its answer.
func toldDeaths(h http.Header) int {
	n, err := strconv.Atoi(relay.First(h, relay.HeaderDeaths))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// eventDeaths is how many workers have died under a request by the event that ended its stream.
func eventDeaths(ev []byte) int {
	data, ok := bytes.CutPrefix(bytes.TrimSpace(ev), []byte("data:"))
	if !ok {
		return 0
	}
	e := openai.ParseError(http.StatusOK, data)
	switch {
	case e == nil:
		return 0
	case e.Code == openai.CodeKillsWorkers:
		return 2
	case e.Code == openai.CodeWorkerCrashed:
		return 1
	}
	return 0
}

// tellDeaths tells another region's gateway how many workers have died under its request.
func (q *request) tellDeaths(w http.ResponseWriter) {
	if q.peer && q.hop.Deaths > 0 {
		w.Header().Set(relay.HeaderDeaths, strconv.Itoa(q.hop.Deaths))
	}
}
