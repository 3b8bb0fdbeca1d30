package local

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/lifetime"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
)

// progressEvery bounds how often one stream tells the breaker that its worker is emitting.
const progressEvery = 250 * time.Millisecond

// maxErrorBody is how much of an error answer is kept for the breaker, in bytes. It is looked at and thrown away.
const maxErrorBody = 16 << 10

// meter watches one answer pass: it books the first byte, counts tokens, and signs the head with the way it came.
type meter struct {
	ctx       lifetime.Context // the attempt's
	agent     *Agent
	at        *attempt
	events    bool
	status    int
	stream    openai.StreamMeter
	body      openai.BodyMeter
	told      time.Time // when the breaker was last told
	errorBody []byte
}

// Head signs the answer's head.
func (m *meter) Head(resp *http.Response, out http.Header) {
	m.status = resp.StatusCode
	m.events = strings.HasPrefix(relay.First(resp.Header, "Content-Type"), "text/event-stream")
	v, cfg := m.at.visit, &m.agent.cfg
	values := make([]string, 2) // one piece of memory for both
	values[0], values[1] = cfg.Region+"/"+cfg.Zone+"/"+m.at.worker.declared.Name, v.hop.RequestID
	out[relay.HeaderRoute] = values[:1:1]
	relay.TellEndpoint(out, v.hop.TellEndpoint, m.at.worker.declared.URL)
	if v.hop.RequestID != "" {
		out[relay.HeaderXRequestID] = values[1:]
	}
	b := make([]byte, 0, 48)
	b = strconv.AppendFloat(append(b, "queue;dur="...), ms(m.at.sent.Sub(v.arrived)), 'f', 1, 64)
	b = strconv.AppendFloat(append(b, ", worker;dur="...), ms(time.Since(m.at.sent)), 'f', 1, 64)
	out.Add(relay.HeaderServerTiming, string(b))
}

// sign signs the head of an answer that was not relayed and may become the request's answer after all.
func (m *meter) sign(res *relay.Result) {
	if res.Refused != nil && !res.NotStarted {
		m.Head(&http.Response{StatusCode: res.Refused.Status, Header: res.Refused.Header}, res.Refused.Header)
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1000 }

// Chunk sees a piece of the body.
func (m *meter) Chunk(p []byte) {
	now := time.Now()
	if m.at.first.IsZero() {
		m.agent.floor.firstByte(m.at, m.events && m.status/100 == 2, now)
		m.told = now
		if m.status < 500 { // what an error says is compared with the request
			m.at.visit.letGo()
		}
	}
	m.at.last = now
	if now.Sub(m.told) > progressEvery {
		m.agent.floor.progress(m.at, now)
		m.told = now
	}
	switch {
	case m.status >= 500:
		m.errorBody = append(m.errorBody, p[:min(len(p), maxErrorBody-len(m.errorBody))]...)
	case m.events:
		m.stream.Chunk(p)
	default:
		m.body.Chunk(p)
	}
}

// Held notes that the answer waits for its client.
func (m *meter) Held(on bool) { m.at.waits.Store(on) }

// usage is the token account that the engine stated.
func (m *meter) usage() openai.Usage {
	if m.events {
		return m.stream.Usage
	}
	return m.body.Usage()
}

// account is what the answer used, stated or else estimated.
func (m *meter) account() openai.Usage {
	q := &m.at.visit.query
	if m.events {
		return m.stream.Account(int(q.PromptTokens))
	}
	v := m.at.visit
	return m.body.Account(int(q.PromptTokens), v.shape.Output(&v.env, int(q.OutputTokens), m.body.Bytes, m.agent.policy.Load().bytesPerToken(v.model)))
}
