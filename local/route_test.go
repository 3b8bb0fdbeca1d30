package local_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/pick"
)

// stubWorker is a worker that speaks OpenAI's shape and nothing else: no metrics, no state.
type stubWorker struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []string
	paths  []string
}

func newStubWorker(t *testing.T) *stubWorker {
	s := &stubWorker{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			_, _ = io.WriteString(w, `{"object":"list","data":[]}`)
			return
		}
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies, s.paths = append(s.bodies, string(b)), append(s.paths, r.URL.EscapedPath())
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stubWorker) lastRequest() (path, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bodies) == 0 {
		return "", ""
	}
	return s.paths[len(s.paths)-1], s.bodies[len(s.bodies)-1]
}

// standaloneZone is a zone that stands alone, with a spec in a file.
type standaloneZone struct {
	*local.Agent
	t    *testing.T
	file string
}

// zoneWorker is a stub with what an operator says of it.
type zoneWorker struct {
	name   string
	stub   *stubWorker
	models []string
	labels map[string]string
}

func startStandaloneZone(t *testing.T, text string, ws ...zoneWorker) *standaloneZone {
	t.Helper()
	z := &standaloneZone{t: t, file: filepath.Join(t.TempDir(), "spec.yaml")}
	z.writeSpec(text)
	z.Agent = startAgent(t, func(c *local.Config) {
		c.SpecFile = z.file
		for _, w := range ws {
			c.Workers = append(c.Workers, discover.Worker{Name: w.name, URL: w.stub.URL, GPU: "H100", Models: w.models, Labels: w.labels, Weight: 1})
		}
	})
	for _, w := range ws {
		for _, m := range w.models {
			z.awaitCondition(w.name+" serves "+m, func() bool {
				for _, s := range z.Status().Workers {
					if s.Name == w.name && s.State == admin.StateReady {
						return true
					}
				}
				return false
			})
		}
	}
	return z
}

func (z *standaloneZone) writeSpec(text string) {
	z.t.Helper()
	if err := os.WriteFile(z.file, []byte(text), 0o600); err != nil {
		z.t.Fatal(err)
	}
}

func (z *standaloneZone) awaitCondition(what string, f func() bool) {
	z.t.Helper()
	testkit.Eventually(z.t, what, f)
}

// postTo asks for a chat and returns the worker that answered, with status, body and headers.
func (z *standaloneZone) postTo(path, body string, header ...string) (worker string, resp *http.Response, answer string) {
	z.t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+z.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		z.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err = testClient.Do(req)
	if err != nil {
		z.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		z.t.Fatal(err)
	}
	at := resp.Header.Get("X-Spillway-Route")
	return at[strings.LastIndexByte(at, '/')+1:], resp, string(b)
}

const chatPath = "/v1/chat/completions"

// TestCanaryShareIsStickyPerSession: "Shown by" 5 of the local tier, through the door of a zone that stands alone.
func TestCanaryShareIsStickyPerSession(t *testing.T) {
	const sessions, spec5 = 10_000, "models: [{name: stable}, {name: canary}]\naliases: [{name: chat, targets: [{model: stable, weight: 95}, {model: canary, weight: 5}]}]\n"
	old, now := newStubWorker(t), newStubWorker(t)
	z := startStandaloneZone(t, spec5, zoneWorker{"old", old, []string{"stable"}, nil}, zoneWorker{"new", now, []string{"canary"}, nil})
	round := func(n int) []bool {
		out := make([]bool, n)
		var wg sync.WaitGroup
		for part := range 8 {
			wg.Go(func() {
				for i := part; i < n; i += 8 {
					at, resp, answer := z.postTo(chatPath, `{"model":"chat","messages":[]}`, "X-Session-Id", fmt.Sprintf("session-%d", i))
					if resp.StatusCode != 200 {
						t.Errorf("session %d: %d %s", i, resp.StatusCode, answer)
						return
					}
					out[i] = at == "new"
				}
			})
		}
		wg.Wait()
		return out
	}
	first, again := round(sessions), round(sessions/10)
	in, flips := 0, 0
	for i := range first {
		if first[i] {
			in++
		}
		if i < len(again) && first[i] != again[i] {
			flips++
		}
	}
	z.writeSpec(strings.Replace(strings.Replace(spec5, "95", "90", 1), "weight: 5", "weight: 10", 1))
	if err := z.Reload(); err != nil {
		t.Fatal(err)
	}
	raised, joined, left := round(sessions/2), 0, 0
	now10 := 0
	for i := range raised {
		if raised[i] {
			now10++
		}
		if raised[i] && !first[i] {
			joined++
		}
		if !raised[i] && first[i] {
			left++
		}
	}
	t.Logf("canary at 5 %%: %.2f %% of %d sessions, %d flips; raised to 10 %%: %.2f %% of the first half, %d sessions moved into it and %d out of it",
		float64(in)*100/sessions, sessions, flips, float64(now10)*100/float64(len(raised)), joined, left)
	if in < sessions*45/1000 || in > sessions*55/1000 || flips != 0 || left != 0 || now10 < len(raised)*9/100 || now10 > len(raised)*11/100 {
		t.Error("the canary does not hold its share or its sessions")
	}
	if _, body := now.lastRequest(); !strings.Contains(body, `"model":"canary"`) {
		t.Errorf("the worker was asked for %s", body)
	}
}

func TestBlueGreenSwitchMovesAllRequestsAtOnce(t *testing.T) {
	const blue = "models: [{name: blue}, {name: green}]\naliases: [{name: live, targets: [{model: blue, weight: 100}, {model: green, weight: 0}]}]\n"
	z := startStandaloneZone(t, blue, zoneWorker{"b", newStubWorker(t), []string{"blue"}, nil}, zoneWorker{"g", newStubWorker(t), []string{"green"}, nil})
	all := func(want string) {
		t.Helper()
		for i := range 50 {
			if at, resp, answer := z.postTo(chatPath, `{"model":"live","messages":[]}`, "X-Session-Id", fmt.Sprint(i)); at != want {
				t.Fatalf("session %d went to %q: %d %s", i, at, resp.StatusCode, answer)
			}
		}
	}
	all("b")
	if at, _, _ := z.postTo(chatPath, `{"model":"live","messages":[]}`, "X-Spillway-Target", "green"); at != "g" {
		t.Errorf("who pins the new one before the switch gets %s", at)
	}
	z.writeSpec(strings.NewReplacer("weight: 100", "weight: 0", "weight: 0", "weight: 100").Replace(blue))
	if err := z.Reload(); err != nil {
		t.Fatal(err)
	}
	all("g")
}

func TestRoutingRulesOfStandaloneZone(t *testing.T) {
	s, l := newStubWorker(t), newStubWorker(t)
	z := startStandaloneZone(t, `models: [{name: small}, {name: large, output_limit: 100}, {name: private}]
aliases:
  - name: best
    targets: [{model: large, weight: 1}, {model: small, weight: 1, when: {header: {name: X-Cohort, value: beta}}}]
tenants: [{name: default, class: standard, models: [best, large, small]}]
routing: {batch: {enabled: false}}
`, zoneWorker{"s", s, []string{"small", "private", "unheard"}, nil}, zoneWorker{"l", l, []string{"large"}, nil})
	for name, tc := range map[string]struct {
		path, body, want string
		header           []string
		status           int
		says             string
	}{
		"alias":              {body: `{"model":"best","messages":[]}`, want: "l"},
		"condition":          {body: `{"model":"best","messages":[]}`, header: []string{"X-Cohort", "beta"}, want: "s"},
		"pin":                {body: `{"model":"best","messages":[]}`, header: []string{"X-Spillway-Target", "small"}, want: "s"},
		"not a target":       {body: `{"model":"best","messages":[]}`, header: []string{"X-Spillway-Target", "private"}, status: 400, says: "its targets: large, small"},
		"pin of an unknown":  {body: `{"model":"unheard","messages":[]}`, header: []string{"X-Spillway-Target", "small"}, status: 400, says: "its targets: unheard"},
		"not in the spec":    {body: `{"model":"unheard","messages":[]}`, status: 403, says: "model_not_allowed"},
		"not allowed":        {body: `{"model":"private","messages":[]}`, status: 403, says: "model_not_allowed"},
		"over the limit":     {body: `{"model":"large","messages":[],"max_tokens":101}`, status: 400, says: "at most 100"},
		"under the limit":    {body: `{"model":"large","messages":[],"max_tokens":100}`, want: "l"},
		"embeddings":         {path: "/v1/embeddings", body: `{"model":"best","input":"x"}`, want: "l"},
		"inference":          {path: "/v2/models/best/infer", body: "\xff\x00", want: "l"},
		"inference, version": {path: "/v2/models/best/versions/2/infer", header: []string{"X-Cohort", "beta"}, body: "\xff\x00", want: "s"},
	} {
		path := tc.path
		if path == "" {
			path = chatPath
		}
		at, resp, answer := z.postTo(path, tc.body, tc.header...)
		if at != tc.want || tc.status != 0 && resp.StatusCode != tc.status || !strings.Contains(answer, tc.says) {
			t.Errorf("%s: %q answered %d %s", name, at, resp.StatusCode, answer)
		}
	}
	z.postTo("/v2/models/best/versions/2/infer", "\xff")
	if path, body := l.lastRequest(); path != "/v2/models/large/versions/2/infer" || body != "\xff" {
		t.Errorf("the inference arrived as %s %q", path, body)
	}
	z.postTo(chatPath, `{"model":"best","messages":[]}`)
	if _, body := l.lastRequest(); !strings.Contains(body, `"model":"large"`) || !strings.Contains(body, `"max_tokens":100`) || !json.Valid([]byte(body)) {
		t.Errorf("a request that names no limit arrived as %s", body)
	}
	resp, err := testClient.Get("http://" + z.Addr().String() + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, _ := io.ReadAll(resp.Body)
	if got := string(b); !strings.Contains(got, `"best"`) || strings.Contains(got, `"private"`) {
		t.Errorf("what is offered: %s", got)
	}
	recs, err := z.Explain(admin.ExplainQuery{Model: "best", Headers: map[string][]string{"X-Cohort": {"beta"}}})
	if err != nil || !strings.Contains(strings.Join(recs[0].Notes, "; "), `target small, for header X-Cohort is "beta"`) || recs[0].Chosen != "s" {
		t.Errorf("explained as %+v, %v", recs, err)
	}
	if _, err := z.Explain(admin.ExplainQuery{Model: "best", Target: "private"}); err == nil {
		t.Error("a pin to what is no target is explained")
	}
}

// TestInvalidSpecFileLeavesLastGoodSpecInForce in force, at a start it is refused.
func TestInvalidSpecFileLeavesLastGoodSpecInForce(t *testing.T) {
	const good = "models: [{name: m}]\naliases: [{name: a, targets: [{model: m, weight: 1}]}]\n"
	z := startStandaloneZone(t, good, zoneWorker{"w", newStubWorker(t), []string{"m"}, nil})
	z.writeSpec("aliases: [{name: a, targets: [{model: nobody, weight: 1}]}]\n")
	if err := z.Reload(); err == nil || !strings.Contains(err.Error(), `unknown model "nobody"`) {
		t.Fatalf("taken: %v", err)
	}
	if at, resp, answer := z.postTo(chatPath, `{"model":"a","messages":[]}`); at != "w" {
		t.Errorf("%d %s", resp.StatusCode, answer)
	}
	z.writeSpec(strings.Replace(good, "name: a,", "name: b,", 1)) // found without a reload
	z.awaitCondition("the new spec holds", func() bool { at, _, _ := z.postTo(chatPath, `{"model":"b","messages":[]}`); return at == "w" })
	if _, err := local.New(local.Config{Name: "a", Region: "r", Zone: "z", Listen: "127.0.0.1:0", Plain: true, SpecFile: filepath.Join(t.TempDir(), "absent")}); err == nil {
		t.Error("a start without its spec file succeeds")
	}
}

func TestPoolWorkersServeOnlyTheirPool(t *testing.T) {
	const text = `models: [{name: m}, {name: n}]
tenants: [{name: default, class: interactive}]
pools:
  - {name: quick, labels: {tier: gold}, classes: [interactive]}
`
	gold, shared := newStubWorker(t), newStubWorker(t)
	z := startStandaloneZone(t, text, zoneWorker{"gold", gold, []string{"m"}, map[string]string{"tier": "gold", "rack": "7"}}, zoneWorker{"shared", shared, []string{"m", "n"}, nil})
	served := func(model, class, want string) {
		t.Helper()
		for range 20 {
			if at, resp, answer := z.postTo(chatPath, `{"model":"`+model+`","messages":[]}`, "X-Spillway-Class", class); at != want {
				t.Fatalf("%s %s went to %q: %d %s", class, model, at, resp.StatusCode, answer)
			}
		}
	}
	served("m", "interactive", "gold")
	served("m", "batch", "shared")
	served("n", "batch", "shared")
	s := z.Summary(time.Now())
	if m := s.FindModel("m").FindPool("quick"); m == nil || m.Ready != 1 || m.Total != 1 || m.PrefillRate() >= s.FindModel("m").PrefillRate() {
		t.Errorf("of the pool it states %+v", m)
	}
	if n := s.FindModel("n").FindPool("quick"); n == nil || n.Ready != 0 || n.Total != 0 {
		t.Errorf("of a pool without a worker for the model it states %+v", n)
	}
	_, resp, answer := z.postTo(chatPath, `{"model":"n","messages":[]}`, "X-Spillway-Class", "interactive")
	if resp.StatusCode != 503 || !strings.Contains(answer, `no worker of the pool \"quick\" serves n here`) || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a pool without a worker: %d %s", resp.StatusCode, answer)
	}
	recs, err := z.Explain(admin.ExplainQuery{Model: "m", Class: "interactive"})
	why := ineligibleReasons(t, recs, err)
	if why["gold"] != "" || why["shared"] != "not of the request's pool" || !strings.Contains(strings.Join(recs[0].Notes, ";"), "of the pool quick") {
		t.Errorf("explained as %v, %v", why, recs[0].Notes)
	}
	recs, err = z.Explain(admin.ExplainQuery{Model: "m", Class: "batch"})
	if why := ineligibleReasons(t, recs, err); why["gold"] != "dedicated to another pool" {
		t.Errorf("explained as %v", why)
	}
	z.writeSpec(strings.Replace(text, "classes: [interactive]}", "classes: [interactive], overflow: true}", 1))
	if err := z.Reload(); err != nil {
		t.Fatal(err)
	}
	served("n", "interactive", "shared")
	served("m", "interactive", "gold")
	z.writeSpec("models: [{name: m}]\npools: [{name: all, labels: {tier: gold}, models: [m]}]\n")
	if err := z.Reload(); err != nil {
		t.Fatal(err)
	}
	served("m", "batch", "gold")
	gold.CloseClientConnections()
	gold.Close()
	z.awaitCondition("a pool whose only worker died is refused at once", func() bool {
		_, resp, _ := z.postTo(chatPath, `{"model":"m","messages":[]}`)
		return resp.StatusCode == 503
	})
}

// TestFallbackOfStandaloneZone: the tenant "default" says whether it is allowed.
func TestFallbackOfStandaloneZone(t *testing.T) {
	const text = `models:
  - {name: large, fallback: small, ttft: {interactive: 1ns, standard: 1ns, batch: 1h}}
  - {name: small}
tenants: [{name: default, class: interactive, fallback: true}]
`
	// Nothing meets a nanosecond: a fallback that cannot either is of no use. One without a worker has no capacity at all.
	s := newStubWorker(t)
	z := startStandaloneZone(t, text, zoneWorker{"s", s, []string{"small"}, nil})
	_, resp, answer := z.postTo(chatPath, `{"model":"large","messages":[]}`)
	if resp.StatusCode != 404 {
		t.Errorf("when the fallback is too slow as well: %d %s", resp.StatusCode, answer)
	}
	fast := strings.ReplaceAll(text, "1ns", "1m")
	z.writeSpec(fast)
	if err := z.Reload(); err != nil {
		t.Fatal(err)
	}
	at, resp, answer := z.postTo(chatPath, `{"model":"large","messages":[]}`)
	if _, body := s.lastRequest(); at != "s" || resp.Header.Get("X-Spillway-Fallback") != "large -> small" || !strings.Contains(body, `"model":"small"`) {
		t.Errorf("%s: %d %s %v, asked for %s", at, resp.StatusCode, answer, resp.Header, body)
	}
	recs, err := z.Explain(admin.ExplainQuery{Model: "large"})
	if err != nil || !strings.Contains(strings.Join(recs[0].Notes, ";"), "its fallback small can") || recs[0].Chosen != "s" {
		t.Errorf("explained as %+v, %v", recs, err)
	}
	for name, spec := range map[string]string{
		"not allowed": strings.Replace(fast, ", fallback: true", "", 1), "no such tenant": fast[:strings.Index(fast, "tenants:")],
		"may not use it": strings.Replace(fast, "fallback: true", "fallback: true, models: [large]", 1),
	} {
		z.writeSpec(spec)
		if err := z.Reload(); err != nil {
			t.Fatal(err)
		}
		if _, resp, answer := z.postTo(chatPath, `{"model":"large","messages":[]}`); resp.StatusCode != 404 || resp.Header.Get("X-Spillway-Fallback") != "" {
			t.Errorf("%s: %d %s", name, resp.StatusCode, answer)
		}
	}
}

// TestZoneWithoutSpecServesWorkerModels: a zone without any spec serves what its workers do, as before.
func TestZoneWithoutSpecServesWorkerModels(t *testing.T) {
	w := newStubWorker(t)
	a := startAgent(t, func(c *local.Config) {
		c.Workers = []discover.Worker{{Name: "w", URL: w.URL, GPU: "H100", Models: []string{"m"}, Weight: 1}}
	})
	z := &standaloneZone{t: t, Agent: a}
	z.awaitCondition("it serves", func() bool {
		at, _, _ := z.postTo(chatPath, `{"model":"m","messages":[]}`, "X-Spillway-Class", spec.Interactive.String())
		return at == "w"
	})
}

// What a spec may name, the chooser must know, under the same name, and the other way round.
func TestSpecAndPickHaveTheSamePolicies(t *testing.T) {
	for i, name := range spec.WorkerPolicies() {
		p, err := pick.ParsePolicy(name)
		if err != nil {
			t.Errorf("a spec may name the policy %q, and no worker is chosen by it: %v", name, err)
		}
		if p.String() != name {
			t.Errorf("policy %q is chosen as %q", name, p)
		}
		if slices.Index(spec.WorkerPolicies(), name) != i {
			t.Errorf("policy %q is there twice", name)
		}
	}
	for p := pick.Policy(0); ; p++ {
		parsed, err := pick.ParsePolicy(p.String())
		if err != nil || parsed != p {
			if p == 0 {
				t.Fatal("the chooser knows no policy")
			}
			return // past the last
		}
		if !slices.Contains(spec.WorkerPolicies(), p.String()) {
			t.Errorf("workers are chosen by the policy %q, and no spec may name it", p)
		}
	}
}
