package regional_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
)

const resumeText = "Hello, cruel wor\nld"

// scriptedZone is a zone that streams a poem, one word per event, and fails when breaks returns true. It continues
// a poem from the part that it receives.
type scriptedZone struct {
	name     string
	breaks   func(w http.ResponseWriter, said int) bool // returns true when the zone has failed
	requests atomic.Int64
	hops     chan forward.Hop
}

func (p *scriptedZone) serveStream(w http.ResponseWriter, r *http.Request) {
	p.requests.Add(1)
	hop, _ := forward.ParseHop(r.Header)
	p.hops <- hop
	var b struct {
		Messages []struct{ Role, Content string }
		Final    bool `json:"continue_final_message"`
		Max      int  `json:"max_tokens"`
	}
	_ = json.NewDecoder(r.Body).Decode(&b)
	text, prompt := resumeText, 9
	if last := b.Messages[len(b.Messages)-1]; last.Role == "assistant" && b.Final {
		text = strings.TrimPrefix(resumeText, last.Content)
		prompt += (len(last.Content) + 3) / 4
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(rest string) {
		_, _ = fmt.Fprintf(w, `data: {"id":%q,"created":1,"model":"small",%s}`+"\n\n", p.name, rest)
		w.(http.Flusher).Flush()
	}
	send(`"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]`)
	n := 0
	for ; len(text) > 0; n++ {
		if p.breaks != nil && p.breaks(w, n) {
			return
		}
		piece := text[:min(4, len(text))]
		text = text[len(piece):]
		quoted, _ := json.Marshal(piece)
		send(`"choices":[{"index":0,"delta":{"content":` + string(quoted) + `},"finish_reason":null}]`)
	}
	send(`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]`)
	if hop.AskUsage {
		send(fmt.Sprintf(`"choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}`, prompt, prompt+n, n))
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

func newScriptedZone(name string, dies func(http.ResponseWriter, int) bool) *scriptedZone {
	return &scriptedZone{name: name, breaks: dies, hops: make(chan forward.Hop, 100)}
}

// breakOnceAfter fails in the middle, once for all zones that share it.
func breakOnceAfter(after int, how func(http.ResponseWriter)) func(http.ResponseWriter, int) bool {
	var done atomic.Bool
	return func(w http.ResponseWriter, said int) bool {
		if said != after || !done.CompareAndSwap(false, true) {
			return false
		}
		how(w)
		return true
	}
}

// joinStream joins a stream's events as a client does.
func joinStream(t *testing.T, body string) (text string, ids map[string]bool, failure string) {
	t.Helper()
	ids = map[string]bool{}
	for ev := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data := strings.TrimPrefix(ev, "data: ")
		if data == "[DONE]" {
			continue
		}
		var o struct {
			ID      string
			Choices []struct{ Delta struct{ Content string } }
			Error   struct{ Code string }
		}
		if err := json.Unmarshal([]byte(data), &o); err != nil {
			t.Fatalf("a torn event: %q", ev)
		}
		for _, c := range o.Choices {
			text += c.Delta.Content
		}
		if failure = o.Error.Code; failure == "" {
			ids[o.ID] = true
		}
	}
	return text, ids, failure
}

// countKnownInstances returns the number of zone instances with a summary at a gateway.
func countKnownInstances(reg *prometheus.Registry) int {
	n, _ := testutil.GatherAndCount(reg, "spillway_regional_report_age_seconds")
	return n
}

const streamBody = `{"model":"small","messages":[{"role":"user","content":"a poem"}],"max_tokens":16,"stream":true}`

// A zone fails, or reports the loss of its worker, in the middle of a response. Another zone continues, and the
// response is counted once.
func TestStreamResumesInAnotherZone(t *testing.T) {
	for name, how := range map[string]func(http.ResponseWriter){
		"the connection breaks": func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"the zone gives it up": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `data: {"error":{"message":"lost","type":"server_error","code":"upstream_lost"}}`+"\n\n")
		},
		"an event is torn": func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `data: {"id":"x","choices":[{"index":0,"delta":{"content":"torn`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			reg := prometheus.NewRegistry()
			g := w.startGateway("fra", func(c *regional.Config) { c.Registry = reg })
			dies := breakOnceAfter(3, how)
			a, b := newScriptedZone("a", dies), newScriptedZone("b", dies)
			w.startLocal(g, "fra", "fra-a", a.serveStream, roomyModel("small"))
			w.startLocal(g, "fra", "fra-b", b.serveStream, roomyModel("small"))
			w.waitUntilServed(g, "small")
			testkit.Eventually(t, "both zones are known", func() bool { return countKnownInstances(reg) == 2 })
			count := func(name string) (n float64) {
				fs, _ := reg.Gather()
				for _, f := range fs {
					if f.GetName() == name {
						for _, m := range f.GetMetric() {
							n += m.GetCounter().GetValue()
						}
					}
				}
				return n
			}
			before := count("spillway_regional_requests_total")
			resp, body := w.getAnswer(g, clientCall{key: "key-acme", body: streamBody})
			text, ids, failure := joinStream(t, body)
			if text != resumeText || failure != "" || len(ids) != 1 || !strings.HasSuffix(body, "data: [DONE]\n\n") || strings.Contains(body, "usage") {
				t.Fatalf("text %q from %v, %s\n%s", text, ids, failure, body)
			}
			if resp.Trailer.Get(forward.HeaderResumed) != "regional" {
				t.Errorf("trailer is %v", resp.Trailer)
			}
			if a.requests.Load() != 1 || b.requests.Load() != 1 {
				t.Errorf("the zones were asked %d and %d times", a.requests.Load(), b.requests.Load())
			}
			first, second := <-a.hops, <-b.hops
			if first.ContinuedTokens != 0 {
				first, second = second, first
			}
			if first.ContinuedTokens != 0 || second.ContinuedTokens != 3 || second.Ticket.Number <= first.Ticket.Number || second.PromptTokens != first.PromptTokens+3 || second.MaxTokens != 13 {
				t.Errorf("the first was told %+v, the second %+v", first, second)
			}
			want := `# HELP spillway_regional_tokens_total Tokens by model, class and kind (prompt, of which cached, and completion); source separates counts of the engine from estimates.
# TYPE spillway_regional_tokens_total counter
spillway_regional_tokens_total{class="standard",kind="completion",model="small",source="stated"} 5
spillway_regional_tokens_total{class="standard",kind="prompt",model="small",source="stated"} 9
`
			testkit.Eventually(t, "it is counted once", func() bool {
				return testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_regional_tokens_total") == nil
			})
			if requests := count("spillway_regional_requests_total") - before; requests != 1 || count("spillway_regional_resumes_total") != 1 {
				t.Errorf("%v requests and %v resumes were counted", requests, count("spillway_regional_resumes_total"))
			}
		})
	}
}

// When no zone can continue, or the continuing one fails too, the stream ends with exactly one error.
func TestStreamThatCannotResumeEndsWithError(t *testing.T) {
	always := func(_ http.ResponseWriter, said int) bool {
		if said == 2 {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	for zones, asked := range map[int]int64{1: 1, 2: 2} {
		w := newWorld(t)
		reg := prometheus.NewRegistry()
		g := w.startGateway("fra", func(c *regional.Config) { c.Registry = reg })
		p := newScriptedZone("p", always)
		for i := range zones {
			w.startLocal(g, "fra", []string{"fra-a", "fra-b"}[i], p.serveStream, roomyModel("small"))
		}
		w.waitUntilServed(g, "small")
		testkit.Eventually(t, "the zones are known", func() bool { return countKnownInstances(reg) == zones })
		_, body := w.getAnswer(g, clientCall{key: "key-acme", body: streamBody})
		text, _, failure := joinStream(t, body)
		if failure != "upstream_lost" || !strings.HasPrefix(resumeText, text) || p.requests.Load() != asked || strings.Count(body, `"error":`) != 1 {
			t.Errorf("%d zones: %q, %s, asked %d times\n%s", zones, text, failure, p.requests.Load(), body)
		}
	}
}
