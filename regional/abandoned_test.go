package regional_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
	"github.com/spillway-lb/spillway/regional/usage"
)

// prompt7500 is a request of about 7,500 tokens.
func prompt7500() string {
	return strings.Replace(ask, "secret", strings.Repeat("word ", 6000), 1)
}

// leaving declares tenants that may use 10,000 tokens in a minute.
func (w *world) leaving(names ...string) {
	text := ""
	for _, name := range names {
		text += tenantWith(name, "limits: {tokens_per_minute: 10000}")
	}
	w.declare(text)
}

// TestClientThatLeavesPaysForTheBegunPrompt: requests whose clients leave before the first byte use the limits of their
// tenant, and are recorded.
func TestClientThatLeavesPaysForTheBegunPrompt(t *testing.T) {
	w := newWorld(t)
	w.leaving("leaver")
	dir := t.TempDir()
	g := w.gateway("fra", func(c *regional.Config) { c.UsageDir = dir })
	l := w.local(g, "fra", "fra-a", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, small("small"))
	w.served(g, "small")
	begun, refused := 0, 0
	for range 30 {
		ctx, leave := context.WithCancel(context.Background())
		answers := make(chan *http.Response, 1)
		go func() {
			resp, err := w.do(ctx, g, call{key: "key-leaver", body: prompt7500()})
			if err == nil {
				_ = resp.Body.Close()
			}
			answers <- resp
		}()
		select {
		case <-l.hits:
			<-l.bodies
			begun++
			eventually(t, "the request is sent", func() bool { sent, _ := g.Attempts(); return sent == 1 })
			leave()
			<-answers
			eventually(t, "the attempt has ended", func() bool { sent, _ := g.Attempts(); return sent == 0 })
		case resp := <-answers:
			if resp != nil && resp.StatusCode == http.StatusTooManyRequests {
				refused++
			}
		}
		leave()
	}
	if begun > 2 || begun+refused != 30 {
		t.Errorf("%d requests were begun and %d refused, want at most 2 begun and all others refused", begun, refused)
	}
	must(t, g.Stop(soon(t)))
	r, err := usage.Read([]string{dir}, []string{"tenant"})
	must(t, err)
	got := r.Totals[usage.Key{Tenant: "leaver"}]
	if got.Requests != int64(begun) || got.Prompt < 7000*got.Requests || got.Completion != 0 || got.Estimated != got.Requests {
		t.Errorf("recorded %+v, want the prompts of %d requests", got, begun)
	}
}

// TestClientThatLeavesAQueueIsNotCharged: the prompt of a client that leaves is charged when a worker has begun it, and not
// when the zone had queued it. Requests of the gateway's own region and spilled ones are charged alike.
func TestClientThatLeavesAQueueIsNotCharged(t *testing.T) {
	for _, spilled := range []bool{false, true} {
		for i, c := range []struct {
			steps []string
			want  int
		}{
			{nil, http.StatusTooManyRequests},
			{[]string{relay.ProgressQueued}, http.StatusOK},
			{[]string{relay.ProgressQueued, relay.ProgressStarted}, http.StatusTooManyRequests},
		} {
			t.Run(fmt.Sprintf("spilled=%v/%d", spilled, i), func(t *testing.T) { leaveAfter(t, spilled, c.steps, c.want) })
		}
	}
}

// leaveAfter leaves a request after the zone has reported steps, and checks the answer to another one.
func leaveAfter(t *testing.T, spilled bool, steps []string, want int) {
	var w *world
	var from, to *regional.Gateway
	region := "fra"
	if spilled {
		r := newRegions(t, nil)
		w, from, to, region = r.world, r.fra, r.iad, "iad"
	} else {
		w = newWorld(t)
		from = w.gateway("fra", nil)
		to = from
	}
	w.leaving("leaver")
	step := make(chan string)
	l := w.local(to, region, region+"-a", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Stays") != "" {
			reply(rw, r)
			return
		}
		for {
			select {
			case s := <-step:
				relay.WriteProgress(rw, s)
			case <-r.Context().Done():
				return
			}
		}
	}, small("small"))
	w.served(to, "small")
	eventually(t, "the zone serves", func() bool {
		resp, _ := w.ask(from, call{key: "key-acme", body: ask, header: http.Header{"X-Stays": {"1"}}})
		return resp.StatusCode == http.StatusOK
	})
	for _, g := range []*regional.Gateway{from, to} {
		eventually(t, "the tenant is known", func() bool {
			resp, _ := w.ask(g, call{method: "GET", path: "/v1/models", key: "key-leaver"})
			return resp.StatusCode == http.StatusOK
		})
	}
	for len(l.hits) > 0 {
		<-l.hits
	}
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := w.do(ctx, from, call{key: "key-leaver", body: prompt7500()}); err == nil {
			_ = resp.Body.Close()
			t.Errorf("the request was answered %d", resp.StatusCode)
		}
	}()
	select {
	case <-l.hits:
	case <-gone:
		t.FailNow()
	}
	eventually(t, "the request is sent", func() bool { sent, _ := from.Attempts(); return sent == 1 })
	for _, s := range steps {
		step <- s
		queues := 0
		if s == relay.ProgressQueued {
			queues = 1
		}
		eventually(t, "the gateway knows that it is "+s, func() bool { _, queued := from.Attempts(); return queued == queues })
	}
	leave()
	<-gone
	eventually(t, "the attempt has ended", func() bool { sent, _ := from.Attempts(); return sent == 0 })
	resp, body := w.ask(from, call{key: "key-leaver", body: prompt7500(), header: http.Header{"X-Stays": {"1"}}})
	if resp.StatusCode != want || want == http.StatusTooManyRequests && code(body) != openai.CodeTokens {
		t.Errorf("after %v the next request was answered %d %s, want %d", steps, resp.StatusCode, body, want)
	}
}

// TestClientThatLeavesSpendsItsBudget: the begun prompt counts against the budget of the day.
func TestClientThatLeavesSpendsItsBudget(t *testing.T) {
	w := newWorld(t)
	w.declare(tenantWith("leaver", "budget: {tokens_per_day: 7600, "+noon()+"}"))
	g := w.gateway("fra", nil)
	l := w.local(g, "fra", "fra-a", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, small("small"))
	w.served(g, "small")
	w.change(func(*uplink.Directive) {})
	ctx, leave := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := w.do(ctx, g, call{key: "key-leaver", body: prompt7500()}); err == nil {
			_ = resp.Body.Close()
			t.Errorf("the request was answered %d", resp.StatusCode)
		}
	}()
	select {
	case <-l.hits:
	case <-gone:
		t.FailNow()
	}
	eventually(t, "the request is sent", func() bool { sent, _ := g.Attempts(); return sent == 1 })
	leave()
	<-gone
	eventually(t, "the attempt has ended", func() bool { sent, _ := g.Attempts(); return sent == 0 })
	if resp, body := w.ask(g, call{key: "key-leaver", body: prompt7500()}); resp.StatusCode != 429 || code(body) != openai.CodeQuota {
		t.Errorf("with its budget spent it was answered %d %s", resp.StatusCode, body)
	}
}
