package forward_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/spec"
)

func TestHopRoundTrip(t *testing.T) {
	want := forward.Hop{
		RequestID: "r-1", Tenant: "acme", Class: spec.Batch, Model: "m", Hops: 1, Ticket: forward.LedgerTicket{Parent: "gw", Boot: 7, Number: 9},
		PromptTokens: 100, MaxTokens: 20, Deadline: 1500 * time.Millisecond, RetriesLeft: 1, Prefix: 0xfeed, AskUsage: true, Flow: "user-7", TellEndpoint: true,
	}
	h := http.Header{}
	want.SetHeaders(h)
	if got, err := forward.ParseHop(h); err != nil || got != want {
		t.Fatalf("hop is %+v (%v), want %+v", got, err, want)
	}
	if got, err := forward.ParseHop(http.Header{}); err != nil || got != (forward.Hop{Class: spec.Standard}) {
		t.Fatalf("hop of no headers is %+v (%v)", got, err)
	}
}

func TestParseHopRefuses(t *testing.T) {
	for name, v := range map[string]string{
		forward.HeaderTicket: "gw;x;1", forward.HeaderClass: "urgent", forward.HeaderHop: "-1", forward.HeaderPromptTokens: "1e9",
		forward.HeaderMaxTokens: "99999999999", forward.HeaderPrefix: "zz", forward.HeaderDeadlineMS: "soon",
	} {
		if _, err := forward.ParseHop(http.Header{name: {v}}); err == nil {
			t.Errorf("%s: %s was taken", name, v)
		}
	}
}

func TestHopRequestPassesNoCredentialsOrForgedTierHeaders(t *testing.T) {
	in := httptest.NewRequest("POST", "/v1/chat/completions?x=1", nil)
	for name, v := range map[string]string{
		"Authorization": "Bearer k", "X-Api-Key": "k", "Api-Key": "k", "Cookie": "c", "Spillway-Tenant": "root", "spillway-hop": "0", "Connection": "X-Mine, close",
		"X-Mine": "1", "Transfer-Encoding": "chunked", "Te": "trailers", "Expect": "100-continue", "Traceparent": "00-1", "Idempotency-Key": "i",
	} {
		in.Header.Set(name, v)
	}
	out, err := forward.NewHopRequest(context.Background(), in, "https://127.0.0.1:1/v1/chat/completions", []byte("body"), &forward.Hop{Tenant: "acme", Class: spec.Standard})
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"Authorization", "X-Api-Key", "Api-Key", "Cookie", "Connection", "X-Mine", "Transfer-Encoding", "Te", "Expect", forward.HeaderHop} {
		if out.Header.Get(gone) != "" {
			t.Errorf("%s was passed on", gone)
		}
	}
	if out.Header.Get(forward.HeaderTenant) != "acme" || out.Header.Get("Traceparent") != "00-1" || out.Header.Get("Idempotency-Key") != "i" ||
		out.ContentLength != 4 || out.Header.Get("Accept-Encoding") != "identity" {
		t.Errorf("outbound is %+v, length %d", out.Header, out.ContentLength)
	}
	if b, _ := io.ReadAll(out.Body); string(b) != "body" {
		t.Errorf("body is %q", b)
	}
}

func FuzzParseLedgerTicket(f *testing.F) {
	f.Add("gw;1;2")
	f.Add(";;")
	f.Fuzz(func(t *testing.T, s string) {
		tk, err := forward.ParseLedgerTicket(s)
		if err != nil || s == "" {
			return
		}
		if back, err := forward.ParseLedgerTicket(tk.String()); err != nil || back != tk {
			t.Fatalf("%q reads as %+v and back as %+v (%v)", s, tk, back, err)
		}
	})
}

// Parsing any header never panics, and a parsed hop survives writing and parsing.
func FuzzParseHop(f *testing.F) {
	f.Add("acme", "small", "1", "gw;7;42", "12", "ff")
	f.Add("", "", "-1", ";;", "99999999999", "xyz")
	f.Fuzz(func(t *testing.T, tenant, model, hops, ticket, tokens, prefix string) {
		h := http.Header{
			forward.HeaderTenant: {tenant}, forward.HeaderModel: {model}, forward.HeaderHop: {hops},
			forward.HeaderTicket: {ticket}, forward.HeaderPromptTokens: {tokens}, forward.HeaderPrefix: {prefix},
		}
		hop, err := forward.ParseHop(h)
		if err != nil {
			return
		}
		again := http.Header{}
		hop.SetHeaders(again)
		if back, err := forward.ParseHop(again); err != nil || back != hop {
			t.Fatalf("%+v comes back as %+v (%v)", hop, back, err)
		}
	})
}
