package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// maxRedirects is how many 307 or 308 answers one request follows.
const maxRedirects = 3

// verdict is what came of one request.
type verdict uint8

const (
	answered  verdict = iota
	refused           // an HTTP status of 400 or more
	cut               // an answer began and did not end as it should
	lost              // nothing of an answer came
	nowhere           // no address to send to
	abandoned         // the run ended first
	verdicts
)

// result is one request's account.
type result struct {
	verdict verdict
	region  string
	route   string
	status  int
	code    string
	first   time.Time // first token
	prompt  int       // tokens
	output  int       // tokens
	cached  int       // of the prompt's
	err     error
}

// one sends a request, elsewhere again while nothing of an answer came and retries are left, and books what came of it.
func (g *Generator) one(ctx context.Context, c *caller, a *Arrival, due time.Time, model string, number uint64) {
	run := ctx
	ctx, cancel := context.WithDeadline(ctx, due.Add(g.cfg.Timeout))
	defer cancel()
	body := g.body(a, model)
	tried := map[string]bool{}
	var r result
	for attempt := 0; ; attempt++ {
		p, untried, err := c.choose(ctx, tried, g.cfg.RetryFor)
		if err != nil {
			r = result{verdict: nowhere, err: err}
			break
		}
		if attempt > 0 && !untried {
			break // there is no elsewhere
		}
		if attempt > 0 {
			g.stats.retried.Add(1)
		}
		r = g.attempt(ctx, c, p, body, tried)
		if r.verdict != lost || attempt >= g.cfg.Retries || ctx.Err() != nil {
			break
		}
	}
	if r.verdict != answered && run.Err() != nil {
		r.verdict = abandoned
	}
	if r.err != nil && r.verdict != abandoned {
		g.cfg.Log.Debug("request failed", "client", c.client.Name, "error", r.err)
	}
	now := time.Now()
	g.stats.book(&r, due, now, a)
	g.tell(&r, due, now)
	g.record(number, &r, due, now)
}

// attempt sends the request to one place and follows redirects from there.
func (g *Generator) attempt(ctx context.Context, c *caller, p place, body []byte, tried map[string]bool) result {
	target, key := p.base.JoinPath(g.cfg.Path), g.cfg.Key
	for hop := 0; ; hop++ {
		tried[p.addr] = true
		resp, err := g.post(ctx, c, p.addr, target, key, body)
		if err != nil {
			return result{verdict: lost, err: err}
		}
		next, redirect := location(resp, target)
		if !redirect || hop == maxRedirects {
			return g.receive(resp)
		}
		resp.Body.Close()
		g.stats.redirected.Add(1)
		if next.Hostname() != target.Hostname() {
			key = "" // as most clients do when a redirect crosses hosts
		}
		target = next
		if p, _, err = c.locate(ctx, &url.URL{Scheme: next.Scheme, Host: next.Host}, tried, false); err != nil {
			return result{verdict: nowhere, err: err}
		}
	}
}

func (g *Generator) post(ctx context.Context, c *caller, addr string, target *url.URL, key string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	for name, values := range g.cfg.Headers {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return c.transport(addr).RoundTrip(req)
}

// location returns where a redirect that keeps the method leads.
func location(resp *http.Response, from *url.URL) (*url.URL, bool) {
	if resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return nil, false
	}
	to, err := from.Parse(resp.Header.Get("Location"))
	if err != nil || to.Host == "" {
		return nil, false
	}
	return to, true
}

// receive reads an answer to its end.
func (g *Generator) receive(resp *http.Response) result {
	defer resp.Body.Close()
	route := resp.Header.Get("X-Spillway-Route")
	r := result{status: resp.StatusCode, route: route, region: regionOf(route)}
	switch {
	case resp.StatusCode != http.StatusOK:
		r.verdict = refused
		head, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
		r.code = errorCode(head)
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		g.readStream(resp.Body, &r)
	default:
		g.readWhole(resp.Body, &r)
	}
	return r
}

// regionOf takes the region out of region/zone/worker.
func regionOf(route string) string {
	region, _, _ := strings.Cut(route, "/")
	return plain(region)
}

// readStream reads events until the stream ends, timing tokens as they come.
func (g *Generator) readStream(body io.Reader, r *result) {
	var meter openai.StreamMeter
	var last time.Time
	itl := &g.stats.region(r.region).itl
	buf := make([]byte, 8<<10)
	for {
		n, err := body.Read(buf)
		before := meter.Events
		failed := meter.Failed
		meter.Chunk(buf[:n])
		if meter.Failed && !failed {
			r.code = errorCode(errorObject(buf[:n]))
		}
		if made := int(meter.Events - before); made > 0 {
			now := time.Now()
			if r.first.IsZero() {
				r.first, last = now, now
				made--
			}
			for range made {
				itl.add(now.Sub(last) / time.Duration(made))
			}
			last = now
		}
		if err != nil {
			g.endStream(&meter, err, r)
			return
		}
	}
}

func (g *Generator) endStream(m *openai.StreamMeter, err error, r *result) {
	r.output, r.prompt = int(m.Events), m.Usage.Prompt
	if m.Usage.Stated {
		r.output, r.cached = m.Usage.Completion, m.Usage.Cached
	}
	switch {
	case m.Failed:
		r.verdict, r.err = cut, errors.New("the stream carried an error")
	case !m.Done:
		r.verdict, r.err = cut, fmt.Errorf("the stream ended early: %w", err)
		r.code = "connection"
	}
}

// readWhole reads an answer that comes in one piece.
func (g *Generator) readWhole(body io.Reader, r *result) {
	var answer struct {
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	all, err := io.ReadAll(io.LimitReader(body, 64<<20))
	if err == nil {
		err = json.Unmarshal(all, &answer)
	}
	if err != nil {
		r.verdict, r.code, r.err = cut, "connection", fmt.Errorf("reading the answer: %w", err)
		return
	}
	r.prompt, r.output, r.cached = answer.Usage.Prompt, answer.Usage.Completion, answer.Usage.Details.Cached
}

// errorCode takes the code out of an OpenAI-style error; a short word even when there is none.
func errorCode(body []byte) string {
	var e struct {
		Error struct {
			Code any    `json:"code"`
			Type string `json:"type"`
		} `json:"error"`
	}
	if json.NewDecoder(bytes.NewReader(body)).Decode(&e) != nil {
		return "-"
	}
	if s, ok := e.Error.Code.(string); ok && s != "" {
		return plain(s)
	}
	return plain(e.Error.Type)
}

// errorObject returns what begins with the object that holds an error, out of some events.
func errorObject(events []byte) []byte {
	at := max(bytes.Index(events, []byte(`"error"`)), 0)
	return events[max(bytes.LastIndexByte(events[:at], '{'), 0):]
}

// plain makes a word fit for a table out of what a server sent.
func plain(s string) string {
	word := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return -1
	}, s[:min(len(s), 48)])
	if word == "" {
		return "-"
	}
	return word
}
