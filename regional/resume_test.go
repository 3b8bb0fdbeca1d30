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

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/regional"
)

const poem = "Hello, cruel wor\nld"

// poet is a zone that says the poem, a word an event, and dies when it is told to. What it is given of the poem it goes on
// with.
type poet struct {
	name  string
	dies  func(w http.ResponseWriter, said int) bool // true when it has died
	asked atomic.Int64
	hops  chan relay.Hop
}

func (p *poet) serve(w http.ResponseWriter, r *http.Request) {
	p.asked.Add(1)
	hop, _ := relay.ParseHop(r.Header)
	p.hops <- hop
	var b struct {
		Messages []struct{ Role, Content string }
		Final    bool `json:"continue_final_message"`
		Max      int  `json:"max_tokens"`
	}
	_ = json.NewDecoder(r.Body).Decode(&b)
	text, prompt := poem, 9
	if last := b.Messages[len(b.Messages)-1]; last.Role == "assistant" && b.Final {
		text = strings.TrimPrefix(poem, last.Content)
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
		if p.dies != nil && p.dies(w, n) {
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

func newPoet(name string, dies func(http.ResponseWriter, int) bool) *poet {
	return &poet{name: name, dies: dies, hops: make(chan relay.Hop, 100)}
}

// breaking dies in the middle, once for all poets that share it.
func breaking(after int, how func(http.ResponseWriter)) func(http.ResponseWriter, int) bool {
	var done atomic.Bool
	return func(w http.ResponseWriter, said int) bool {
		if said != after || !done.CompareAndSwap(false, true) {
			return false
		}
		how(w)
		return true
	}
}

// recite puts a stream together as a client does.
func recite(t *testing.T, body string) (text string, ids map[string]bool, failure string) {
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

// known is how many zone instances a gateway has heard of.
func known(reg *prometheus.Registry) int {
	n, _ := testutil.GatherAndCount(reg, "spillway_regional_report_age_seconds")
	return n
}

const recital = `{"model":"small","messages":[{"role":"user","content":"a poem"}],"max_tokens":16,"stream":true}`

// A zone dies, or says that its worker is lost, in the middle of an answer. Another zone goes on, and it is counted once.
func TestAStreamGoesOnInAnotherZone(t *testing.T) {
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
			g := w.gateway("fra", func(c *regional.Config) { c.Registry = reg })
			dies := breaking(3, how)
			a, b := newPoet("a", dies), newPoet("b", dies)
			w.local(g, "fra", "fra-a", a.serve, small("small"))
			w.local(g, "fra", "fra-b", b.serve, small("small"))
			w.served(g, "small")
			eventually(t, "both zones are known", func() bool { return known(reg) == 2 })
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
			resp, body := w.ask(g, call{key: "key-acme", body: recital})
			text, ids, failure := recite(t, body)
			if text != poem || failure != "" || len(ids) != 1 || !strings.HasSuffix(body, "data: [DONE]\n\n") || strings.Contains(body, "usage") {
				t.Fatalf("text %q from %v, %s\n%s", text, ids, failure, body)
			}
			if resp.Trailer.Get(relay.HeaderResumed) != "regional" {
				t.Errorf("trailer is %v", resp.Trailer)
			}
			if a.asked.Load() != 1 || b.asked.Load() != 1 {
				t.Errorf("the zones were asked %d and %d times", a.asked.Load(), b.asked.Load())
			}
			first, second := <-a.hops, <-b.hops
			if first.Continues != 0 {
				first, second = second, first
			}
			if first.Continues != 0 || second.Continues != 3 || second.Ticket.N <= first.Ticket.N || second.PromptTokens != first.PromptTokens+3 || second.MaxTokens != 13 {
				t.Errorf("the first was told %+v, the second %+v", first, second)
			}
			want := `# HELP spillway_regional_tokens_total Tokens of answers by model, class and kind (prompt, of which cached, and completion); source tells what engines stated from what was estimated.
# TYPE spillway_regional_tokens_total counter
spillway_regional_tokens_total{class="standard",kind="completion",model="small",source="stated"} 5
spillway_regional_tokens_total{class="standard",kind="prompt",model="small",source="stated"} 9
`
			eventually(t, "it is counted once", func() bool {
				return testutil.GatherAndCompare(reg, strings.NewReader(want), "spillway_regional_tokens_total") == nil
			})
			if requests := count("spillway_regional_requests_total") - before; requests != 1 || count("spillway_regional_resumes_total") != 1 {
				t.Errorf("%v requests and %v resumes were counted", requests, count("spillway_regional_resumes_total"))
			}
		})
	}
}

// With nobody else to go on, or when that one dies too, the stream ends with an error, and says so once.
func TestAStreamThatNobodyGoesOnWithEndsWithAnError(t *testing.T) {
	always := func(_ http.ResponseWriter, said int) bool {
		if said == 2 {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	for zones, asked := range map[int]int64{1: 1, 2: 2} {
		w := newWorld(t)
		reg := prometheus.NewRegistry()
		g := w.gateway("fra", func(c *regional.Config) { c.Registry = reg })
		p := newPoet("p", always)
		for i := range zones {
			w.local(g, "fra", []string{"fra-a", "fra-b"}[i], p.serve, small("small"))
		}
		w.served(g, "small")
		eventually(t, "the zones are known", func() bool { return known(reg) == zones })
		_, body := w.ask(g, call{key: "key-acme", body: recital})
		text, _, failure := recite(t, body)
		if failure != "upstream_lost" || !strings.HasPrefix(poem, text) || p.asked.Load() != asked || strings.Count(body, `"error":`) != 1 {
			t.Errorf("%d zones: %q, %s, asked %d times\n%s", zones, text, failure, p.asked.Load(), body)
		}
	}
}
