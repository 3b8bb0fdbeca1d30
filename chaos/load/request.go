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
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// maxRedirects is the number of 307 or 308 answers that one request follows.
const maxRedirects = 3

// outcomeKind is the outcome of one request.
type outcomeKind uint8

const (
	outcomeOK        outcomeKind = iota
	outcomeRefused               // an HTTP status of 400 or more
	outcomeCut                   // an answer began and did not end properly
	outcomeLost                  // no part of an answer came
	outcomeNoAddress             // no address to send to
	outcomeAbandoned             // the run ended first
	numOutcomes
)

// requestResult is the result of one request.
type requestResult struct {
	outcome      outcomeKind
	region       string
	route        string
	status       int
	code         string
	firstToken   time.Time // first token
	promptTokens int       // tokens
	outputTokens int       // tokens
	cachedTokens int       // of the prompt's
	err          error
}

// sendRequest sends a request, elsewhere again while no part of an answer came and retries are left, and records its
// outcome.
func (g *Generator) sendRequest(ctx context.Context, c *loadClient, a *Arrival, due time.Time, model string, number uint64) {
	run := ctx
	ctx, cancel := context.WithDeadline(ctx, due.Add(g.cfg.Timeout))
	defer cancel()
	body := g.appendBody(a, model)
	tried := map[string]bool{}
	var r requestResult
	for attempt := 0; ; attempt++ {
		p, untried, err := c.chooseEndpoint(ctx, tried, g.cfg.RetryFor)
		if err != nil {
			r = requestResult{outcome: outcomeNoAddress, err: err}
			break
		}
		if attempt > 0 && !untried {
			break // there is no other endpoint
		}
		if attempt > 0 {
			g.stats.retried.Add(1)
		}
		r = g.sendAttempt(ctx, c, p, body, tried)
		if r.outcome != outcomeLost || attempt >= g.cfg.Retries || ctx.Err() != nil {
			break
		}
	}
	if r.outcome != outcomeOK && run.Err() != nil {
		r.outcome = outcomeAbandoned
	}
	if r.err != nil && r.outcome != outcomeAbandoned {
		g.cfg.Log.Debug("request failed", "client", c.config.Name, "error", r.err)
	}
	now := time.Now()
	g.stats.countRequest(&r, due, now, a)
	g.reportOutcome(number, &r, due, now)
	g.recordOutcome(number, &r, due, now)
}

// sendAttempt sends the request to one endpoint and follows redirects from there.
func (g *Generator) sendAttempt(ctx context.Context, c *loadClient, p endpoint, body []byte, tried map[string]bool) requestResult {
	target, key := p.base.JoinPath(g.cfg.Path), g.cfg.Key
	for hop := 0; ; hop++ {
		tried[p.addr] = true
		resp, err := g.postRequest(ctx, c, p.addr, target, key, body)
		if err != nil {
			return requestResult{outcome: outcomeLost, err: err}
		}
		next, redirect := redirectTarget(resp, target)
		if !redirect || hop == maxRedirects {
			return g.readResponse(resp)
		}
		resp.Body.Close()
		g.stats.redirected.Add(1)
		if next.Hostname() != target.Hostname() {
			key = "" // as most clients do when a redirect changes the host
		}
		target = next
		if p, _, err = c.resolveEndpoint(ctx, &url.URL{Scheme: next.Scheme, Host: next.Host}, tried, false); err != nil {
			return requestResult{outcome: outcomeNoAddress, err: err}
		}
	}
}

func (g *Generator) postRequest(ctx context.Context, c *loadClient, addr string, target *url.URL, key string, body []byte) (*http.Response, error) {
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
	return c.transportTo(addr).RoundTrip(req)
}

// redirectTarget returns the target of a redirect that keeps the method.
func redirectTarget(resp *http.Response, from *url.URL) (*url.URL, bool) {
	if resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return nil, false
	}
	to, err := from.Parse(resp.Header.Get("Location"))
	if err != nil || to.Host == "" {
		return nil, false
	}
	return to, true
}

// readResponse reads an answer to its end.
func (g *Generator) readResponse(resp *http.Response) requestResult {
	defer resp.Body.Close()
	route := resp.Header.Get("X-Spillway-Route")
	r := requestResult{status: resp.StatusCode, route: route, region: regionOf(route)}
	switch {
	case resp.StatusCode != http.StatusOK:
		r.outcome = outcomeRefused
		head, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
		r.code = errorCode(head)
	case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		g.readStream(resp.Body, &r)
	default:
		g.readWhole(resp.Body, &r)
	}
	return r
}

// regionOf is the region of region/zone/worker.
func regionOf(route string) string {
	region, _, _ := strings.Cut(route, "/")
	return sanitizeWord(region)
}

// readStream reads events until the stream ends, and times tokens.
func (g *Generator) readStream(body io.Reader, r *requestResult) {
	var meter openai.StreamMeter
	var last time.Time
	itl := &g.stats.regionFor(r.region).itl
	buf := make([]byte, 8<<10)
	for {
		n, err := body.Read(buf)
		before := meter.Events
		failed := meter.Failed
		meter.AddChunk(buf[:n])
		if meter.Failed && !failed {
			r.code = errorCode(errorObject(buf[:n]))
		}
		if made := int(meter.Events - before); made > 0 {
			now := time.Now()
			if r.firstToken.IsZero() {
				r.firstToken, last = now, now
				made--
			}
			for range made {
				itl.addDuration(now.Sub(last) / time.Duration(made))
			}
			last = now
		}
		if err != nil {
			g.endStream(&meter, err, r)
			return
		}
	}
}

func (g *Generator) endStream(m *openai.StreamMeter, err error, r *requestResult) {
	r.outputTokens, r.promptTokens = int(m.Events), m.Usage.Prompt
	if m.Usage.Stated {
		r.outputTokens, r.cachedTokens = m.Usage.Completion, m.Usage.Cached
	}
	switch {
	case m.Failed:
		r.outcome, r.err = outcomeCut, errors.New("the stream carried an error")
	case !m.Done:
		r.outcome, r.err = outcomeCut, fmt.Errorf("the stream ended early: %w", err)
		r.code = "connection"
	}
}

// readWhole reads an answer that is not streamed.
func (g *Generator) readWhole(body io.Reader, r *requestResult) {
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
		r.outcome, r.code, r.err = outcomeCut, "connection", fmt.Errorf("reading the answer: %w", err)
		return
	}
	r.promptTokens, r.outputTokens, r.cachedTokens = answer.Usage.Prompt, answer.Usage.Completion, answer.Usage.Details.Cached
}

// errorCode is the code of an OpenAI-style error, or a short word if there is none.
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
		return sanitizeWord(s)
	}
	return sanitizeWord(e.Error.Type)
}

// errorObject returns the start of the object that holds an error, from some events.
func errorObject(events []byte) []byte {
	at := max(bytes.Index(events, []byte(`"error"`)), 0)
	return events[max(bytes.LastIndexByte(events[:at], '{'), 0):]
}

// sanitizeWord makes a word of a server's answer safe for a table.
func sanitizeWord(s string) string {
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

// vocabulary is words of three letters: each with its space is about one token, and four bytes.
const vocabulary = "and any arm ask bay bed big bit box boy bus cap car cat cow cup cut day dog dry ear eat egg end eye fan far fig fin fly fog for fun gap gas gem hat hen her his ice ink jam jar joy key kit lab law leg let lip log low map mud net new now nut oak odd oil old one "

const wordBytes = 4

// appendPiece appends a piece's text: the same for the same ID, and a longer piece begins with the shorter one.
func appendPiece(dst []byte, p Piece) []byte {
	x := p.ID
	for range p.Tokens {
		x = mixBits(x)
		at := int(x%uint64(len(vocabulary)/wordBytes)) * wordBytes
		dst = append(dst, vocabulary[at:at+wordBytes]...)
	}
	return dst
}

// AppendText appends the text of a prompt that is made of these pieces, as in a request's body.
func AppendText(dst []byte, prompt []Piece) []byte {
	for _, p := range prompt {
		dst = appendPiece(dst, p)
	}
	return dst
}

// appendBody encodes the request. Outputs have exactly the requested length, as in benchmarks of engines.
func (g *Generator) appendBody(a *Arrival, model string) []byte {
	b := make([]byte, 0, a.PromptTokens()*wordBytes+256)
	b = append(b, `{"model":`...)
	b = strconv.AppendQuote(b, model)
	if g.isChat {
		b = append(b, `,"messages":[{"role":"user","content":"`...)
	} else {
		b = append(b, `,"prompt":"`...)
	}
	b = append(AppendText(b, a.Prompt), '"')
	if g.isChat {
		b = append(b, "}]"...)
	}
	b = append(b, `,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(a.Output), 10)
	b = append(b, `,"ignore_eos":true`...)
	if g.cfg.Stream {
		b = append(b, `,"stream":true,"stream_options":{"include_usage":true}`...)
	}
	return append(b, '}')
}

// RequestOutcome is the outcome of one request.
type RequestOutcome struct {
	// Number of the request in the order of the source, from 1 on. Skipped arrivals have none.
	Number uint64
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

func (g *Generator) reportOutcome(number uint64, r *requestResult, due, now time.Time) {
	if g.cfg.OnOutcome == nil {
		return
	}
	g.cfg.OnOutcome(RequestOutcome{
		Number: number, Due: due, First: r.firstToken, Done: now, Kind: r.outcome.String(), Status: r.status, Code: r.code, Route: r.route,
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
