package relay_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
)

func TestHopRoundTrip(t *testing.T) {
	want := relay.Hop{
		RequestID: "r-1", Tenant: "acme", Class: spec.Batch, Model: "m", Hops: 1, Ticket: relay.Ticket{Parent: "gw", Boot: 7, N: 9},
		PromptTokens: 100, MaxTokens: 20, Deadline: 1500 * time.Millisecond, RetriesLeft: 1, Prefix: 0xfeed, AskUsage: true, Flow: "user-7", TellEndpoint: true,
	}
	h := http.Header{}
	want.Set(h)
	if got, err := relay.ParseHop(h); err != nil || got != want {
		t.Fatalf("hop is %+v (%v), want %+v", got, err, want)
	}
	if got, err := relay.ParseHop(http.Header{}); err != nil || got != (relay.Hop{Class: spec.Standard}) {
		t.Fatalf("hop of no headers is %+v (%v)", got, err)
	}
}

func TestParseHopRefuses(t *testing.T) {
	for name, v := range map[string]string{
		relay.HeaderTicket: "gw;x;1", relay.HeaderClass: "urgent", relay.HeaderHop: "-1", relay.HeaderPromptTokens: "1e9",
		relay.HeaderMaxTokens: "99999999999", relay.HeaderPrefix: "zz", relay.HeaderDeadlineMS: "soon",
	} {
		if _, err := relay.ParseHop(http.Header{name: {v}}); err == nil {
			t.Errorf("%s: %s was taken", name, v)
		}
	}
}

func TestOutboundPassesNoSecretAndNoForeignHop(t *testing.T) {
	in := httptest.NewRequest("POST", "/v1/chat/completions?x=1", nil)
	for name, v := range map[string]string{
		"Authorization": "Bearer k", "X-Api-Key": "k", "Api-Key": "k", "Cookie": "c", "Spillway-Tenant": "root", "spillway-hop": "0", "Connection": "X-Mine, close",
		"X-Mine": "1", "Transfer-Encoding": "chunked", "Te": "trailers", "Expect": "100-continue", "Traceparent": "00-1", "Idempotency-Key": "i",
	} {
		in.Header.Set(name, v)
	}
	out, err := relay.Outbound(context.Background(), in, "https://127.0.0.1:1/v1/chat/completions", []byte("body"), &relay.Hop{Tenant: "acme", Class: spec.Standard})
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"Authorization", "X-Api-Key", "Api-Key", "Cookie", "Connection", "X-Mine", "Transfer-Encoding", "Te", "Expect", relay.HeaderHop} {
		if out.Header.Get(gone) != "" {
			t.Errorf("%s was passed on", gone)
		}
	}
	if out.Header.Get(relay.HeaderTenant) != "acme" || out.Header.Get("Traceparent") != "00-1" || out.Header.Get("Idempotency-Key") != "i" ||
		out.ContentLength != 4 || out.Header.Get("Accept-Encoding") != "identity" {
		t.Errorf("outbound is %+v, length %d", out.Header, out.ContentLength)
	}
	if b, _ := io.ReadAll(out.Body); string(b) != "body" {
		t.Errorf("body is %q", b)
	}
}

func FuzzParseTicket(f *testing.F) {
	f.Add("gw;1;2")
	f.Add(";;")
	f.Fuzz(func(t *testing.T, s string) {
		tk, err := relay.ParseTicket(s)
		if err != nil || s == "" {
			return
		}
		if back, err := relay.ParseTicket(tk.String()); err != nil || back != tk {
			t.Fatalf("%q reads as %+v and back as %+v (%v)", s, tk, back, err)
		}
	})
}

// Whatever a header holds, reading it never panics, and what is read is written and read again the same.
func FuzzParseHop(f *testing.F) {
	f.Add("acme", "small", "1", "gw;7;42", "12", "ff")
	f.Add("", "", "-1", ";;", "99999999999", "xyz")
	f.Fuzz(func(t *testing.T, tenant, model, hops, ticket, tokens, prefix string) {
		h := http.Header{
			relay.HeaderTenant: {tenant}, relay.HeaderModel: {model}, relay.HeaderHop: {hops},
			relay.HeaderTicket: {ticket}, relay.HeaderPromptTokens: {tokens}, relay.HeaderPrefix: {prefix},
		}
		hop, err := relay.ParseHop(h)
		if err != nil {
			return
		}
		again := http.Header{}
		hop.Set(again)
		if back, err := relay.ParseHop(again); err != nil || back != hop {
			t.Fatalf("%+v comes back as %+v (%v)", hop, back, err)
		}
	})
}
