package tracing_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/tracing"
	"github.com/spillway-lb/spillway/internal/tracing/tracetest"
)

const clientParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"

// runTracer runs a tracer while do makes traces, and returns its metrics after it has exported them.
func runTracer(t *testing.T, cfg tracing.Config, do func(*tracing.Tracer)) map[string]float64 {
	t.Helper()
	cfg.Tier, cfg.Node = "local", "l1"
	tracer, err := tracing.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(tracer.Collectors("x_")...)
	do(tracer)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Run then exports what waits
	tracer.Run(ctx)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue()
		}
	}
	return out
}

// makeTrace makes the trace of a request with two attempts, the first of which failed if failed is set.
func makeTrace(r *tracing.RequestTrace, failed bool) {
	at := time.Unix(1_700_000_000, 0)
	r.SetQueued(at.Add(time.Millisecond))
	first := tracing.AttemptRecord{
		Span: r.NewAttemptSpan(), Chosen: at.Add(2 * time.Millisecond), FirstByte: at.Add(3 * time.Millisecond), Ended: at.Add(4 * time.Millisecond), Endpoint: "fra/a/w1", Failed: failed,
		Outcome: "interrupted", Choice: tracing.ChoiceRecord{Reason: "predictive", Considered: 3},
	}
	first.Choice.Terms[0] = tracing.ChoiceTerm{Name: "wait", Seconds: .25}
	r.AddAttempt(first)
	r.AddAttempt(tracing.AttemptRecord{Span: r.NewAttemptSpan(), Chosen: at.Add(5 * time.Millisecond), FirstByte: at.Add(7 * time.Millisecond), Ended: at.Add(9 * time.Millisecond), Endpoint: "fra/a/w2", Resumes: true, Status: 200, Outcome: "completed"})
	r.SetUsage(&openai.TokenUsage{Prompt: 11, Completion: 5, Cached: 2})
	r.FinishRequest(&tracing.RequestRecord{Operation: "chat", Model: "asked", ServedModel: "served", Checked: true, Arrived: at, Admitted: at.Add(time.Millisecond), Ended: at.Add(9 * time.Millisecond)})
	r.FinishRequest(&tracing.RequestRecord{Operation: "twice"})
}

// TestTraceReachesReceiver exports one trace over each protocol and checks the tree of its spans.
func TestTraceReachesReceiver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for protocol, receiver := range map[string]*tracetest.Receiver{tracing.ProtocolHTTP: tracetest.StartHTTP(t), tracing.ProtocolGRPC: tracetest.StartGRPC(t)} {
		t.Run(protocol, func(t *testing.T) {
			cfg := tracing.Config{Endpoint: receiver.URL, Protocol: protocol, FollowParent: true, HeaderFiles: map[string]string{"x-token": file}}
			metrics := runTracer(t, cfg, func(tr *tracing.Tracer) { makeTrace(tr.BeginRequest(clientParent+"01", ""), true) })
			if metrics["x_traces_exported_total"] != 1 {
				t.Fatalf("metrics are %v", metrics)
			}
			if protocol == tracing.ProtocolHTTP && receiver.Header().Get("X-Token") != "secret" {
				t.Error("the export lacks the header of a file")
			}
			byID := map[string]tracetest.ReceivedSpan{}
			for _, s := range receiver.Spans() {
				byID[s.SpanHex()] = s
			}
			var tree []string
			for _, s := range receiver.Spans() {
				if s.TraceHex() != clientParent[3:35] || s.EndTimeUnixNano < s.StartTimeUnixNano {
					t.Errorf("span %v", s)
				}
				above := byID[s.ParentHex()].GetName()
				if above == "" {
					above = s.ParentHex()
				}
				tree = append(tree, above+">"+s.Name)
			}
			const want = "b7ad6b7169203331>chat served, chat served>admission, chat served>queue, chat served>choice, chat served>attempt, attempt>prefill, attempt>decode, chat served>resume, chat served>choice, chat served>attempt, attempt>prefill, attempt>decode"
			if got := strings.Join(tree, ", "); got != want {
				t.Errorf("the tree is\n%s\nwant\n%s", got, want)
			}
			checkAttrs(t, receiver.Spans())
		})
	}
}

// checkAttrs checks attributes of makeTrace.
func checkAttrs(t *testing.T, spans []tracetest.ReceivedSpan) {
	t.Helper()
	root, choice, resume := spans[0], spans[3], spans[7]
	if model, _ := root.FindAttr("gen_ai.request.model"); model != "asked" {
		t.Errorf("model is %q", model)
	}
	_, in := root.FindAttr("gen_ai.usage.input_tokens")
	_, out := root.FindAttr("gen_ai.usage.output_tokens")
	if in != 11 || out != 5 {
		t.Errorf("tokens are %v and %v", in, out)
	}
	_, considered := choice.FindAttr("spillway.choice.considered")
	_, wait := choice.FindAttr("spillway.choice.seconds.wait")
	if considered != 3 || wait != .25 {
		t.Errorf("the explanation is %v", choice.Attributes)
	}
	if from, _ := resume.FindAttr("spillway.resume.from"); from != "fra/a/w1" || resume.EndTimeUnixNano-resume.StartTimeUnixNano != uint64(3*time.Millisecond) {
		t.Errorf("the resume is %v", resume)
	}
}

// TestSampling: the parent decides, failed requests are kept outside the sample up to a rate, and all others are not.
func TestSampling(t *testing.T) {
	for _, c := range []struct {
		name, parent string
		sample       float64
		errors, fail bool
		follow       bool
		want         float64
	}{
		{"no parent, sample 0", "", 0, true, false, true, 0},
		{"no parent, sample 1", "", 1, false, false, true, 1},
		{"failed, sample 0", "", 0, true, true, true, 1},
		{"failed, errors off", "", 0, false, true, true, 0},
		{"sampled parent", clientParent + "01", 0, false, false, true, 1},
		{"unsampled parent", clientParent + "00", 1, false, false, true, 0},
		{"unsampled parent, failed", clientParent + "00", 0, true, true, true, 1},
		{"parent not followed", clientParent + "01", 0, false, false, false, 0},
		{"malformed parent", "00-zz-1-01", 0, false, false, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := tracetest.StartHTTP(t)
			cfg := tracing.Config{Endpoint: r.URL, Protocol: tracing.ProtocolHTTP, Sample: c.sample, Errors: c.errors, FollowParent: c.follow}
			m := runTracer(t, cfg, func(tr *tracing.Tracer) { makeTrace(tr.BeginRequest(c.parent, ""), c.fail) })
			if m["x_traces_exported_total"] != c.want {
				t.Errorf("metrics are %v, want %v exported", m, c.want)
			}
		})
	}
}

// TestExportIsBounded: without a receiver no caller waits, what is lost is counted, and errors have a rate.
func TestExportIsBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // connections are refused
	cfg := tracing.Config{Endpoint: "http://" + l.Addr().String(), Protocol: tracing.ProtocolHTTP, Sample: 1}
	m := runTracer(t, cfg, func(tr *tracing.Tracer) {
		for range 3000 {
			makeTrace(tr.BeginRequest("", ""), false)
		}
	})
	if m["x_traces_dropped_total queue_full"] != 3000-2048 || m["x_traces_dropped_total export_failed"] != 2048 {
		t.Errorf("metrics are %v", m)
	}
	cfg.Sample, cfg.Errors = 0, true
	m = runTracer(t, cfg, func(tr *tracing.Tracer) {
		for range 80 { // all end in the same second
			makeTrace(tr.BeginRequest("", ""), true)
		}
	})
	if m["x_traces_dropped_total error_rate"] != 30 || m["x_traces_dropped_total export_failed"] != 50 {
		t.Errorf("metrics of failed requests are %v", m)
	}
}

// TestNothingIsTracedWithoutEndpoint calls every method without a tracer.
func TestNothingIsTracedWithoutEndpoint(t *testing.T) {
	tr, err := tracing.New(tracing.Config{})
	if tr != nil || err != nil {
		t.Fatal(tr, err)
	}
	h := http.Header{tracing.HeaderTraceParent: {"mine"}}
	if n := testing.AllocsPerRun(100, func() {
		r := tr.BeginHTTPRequest(h)
		r.SetParent(h, r.NewAttemptSpan())
		r.SetRefusal(nil)
		r.AddAttempt(tracing.AttemptRecord{})
		r.FinishRequest(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if h.Get("Traceparent") != "mine" {
		t.Error("the client's header was changed")
	}
	tr.Run(t.Context())
	if _, err := tracing.New(tracing.Config{Endpoint: "collector:4317"}); err == nil || !strings.Contains(err.Error(), "tracing.endpoint") {
		t.Errorf("an endpoint without a scheme: %v", err)
	}
}

// FuzzParseTraceParent compares with the library's parser.
func FuzzParseTraceParent(f *testing.F) {
	for _, s := range []string{clientParent + "01", clientParent + "00", "cc" + clientParent[2:] + "01-what", "ff" + clientParent[2:] + "01", clientParent + "01-x", strings.ToUpper(clientParent) + "01", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := tracing.ParseTraceParent(s)
		sc := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": s}))
		if sc.IsValid() && !ok {
			t.Fatalf("%q is refused", s)
		}
		if !ok {
			return
		}
		if sc.IsValid() && (trace.TraceID(p.Trace) != sc.TraceID() || trace.SpanID(p.Span) != sc.SpanID() || p.Sampled != sc.IsSampled()) {
			t.Fatalf("%q is %+v, the library reads %v", s, p, sc)
		}
		again, ok := tracing.ParseTraceParent(string(p.AppendHeader(nil)))
		if !ok || again != p {
			t.Fatalf("%q is read as %+v and written as %q", s, p, p.AppendHeader(nil))
		}
	})
}

// BenchmarkRequest measures one request, not traced, outside the sample and at 1 %.
func BenchmarkRequest(b *testing.B) {
	for name, sample := range map[string]float64{"off": -1, "unsampled": 0, "one percent": .01} {
		b.Run(name, func(b *testing.B) {
			cfg := tracing.Config{Endpoint: "http://127.0.0.1:9", Protocol: tracing.ProtocolHTTP, Sample: sample, Errors: true, FollowParent: true}
			if sample < 0 {
				cfg.Endpoint = ""
			}
			tr, err := tracing.New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			h := http.Header{"Content-Type": {"application/json"}}
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				r := tr.BeginHTTPRequest(h)
				a := tracing.AttemptRecord{Span: r.NewAttemptSpan(), Chosen: now, Ended: now, Status: 200}
				r.SetParent(h, a.Span)
				r.AddAttempt(a)
				r.FinishRequest(&tracing.RequestRecord{Arrived: now, Ended: now})
			}
		})
	}
}
