package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/relay"
)

// TestSurvive kills, kill -9, a worker, a local instance and a peer region's gateway while streams run through each, and
// compares every text, its end and its usage with what an undisturbed worker says. `make survive` does so with 200 streams
// and prints the table.
func TestSurvive(t *testing.T) {
	streams, err := strconv.Atoi(os.Getenv("SPILLWAY_SURVIVE"))
	if err != nil || streams <= 0 {
		t.Skip("`make survive` runs it; TestKills sees to it that no stream is cut, here the texts are compared")
	}
	p := spawnWith(t, 2, 3)
	s := &survivors{processes: p, n: streams, truth: undisturbed(t)}
	t.Logf("%-24s %8s %8s %8s %8s %8s %8s %8s %8s", "killed", "streams", "hit", "resumed", "cut", "wrong", "lost", "doubled", "usage")

	s.round(t, "a worker", "virginia", func(routes map[string]int) fleet.Node {
		region, zone, worker := split(most(routes, 3))
		return p.find(region + "-" + zone + "-" + worker)
	})
	s.round(t, "a local instance", "frankfurt", func(routes map[string]int) fleet.Node {
		region, zone, _ := split(most(routes, 2))
		return p.find(region + "-" + zone + "-local1")
	})
	for _, zone := range []string{"tokyo/a", "tokyo/b"} { // its streams then run in another region
		if out, _, err := spillway(t, "drain", "zone", zone, "--force", "--server", socket("global", "g1")); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s.spilled(t)
	s.round(t, "a peer region's gateway", "tokyo", func(routes map[string]int) fleet.Node {
		region, _, _ := split(most(routes, 1))
		return p.gateway(region)
	})
}

// survivors sends the streams of a round.
type survivors struct {
	*processes
	n     int
	truth func(body string) tale
	asked int
}

// tale is what a client was told.
type tale struct {
	text, finish, failure, route, resumed string
	prompt, completion                    int
}

// split takes a route apart.
func split(route string) (region, zone, worker string) {
	parts := append(strings.Split(route, "/"), "", "")
	return parts[0], parts[1], parts[2]
}

// most is the commonest beginning, of so many parts, of routes.
func most(routes map[string]int, parts int) (best string) {
	sums := map[string]int{}
	for r, n := range routes {
		key := strings.Join(strings.Split(r, "/")[:parts], "/")
		if sums[key] += n; sums[key] > sums[best] || sums[key] == sums[best] && key < best {
			best = key
		}
	}
	return best
}

// round lets n streams begin at a region's gateway, kills what choose names by their routes, and judges what they were told.
func (s *survivors) round(t *testing.T, what, region string, choose func(map[string]int) fleet.Node) {
	t.Helper()
	var begun atomic.Int64
	var mu sync.Mutex
	routes := map[string]int{}
	told, truth := make([]tale, s.n), make([]tale, s.n)
	ended := make([]atomic.Bool, s.n)
	var all sync.WaitGroup
	for i := range s.n {
		s.asked++
		body := fmt.Sprintf(`{"model":"llama-3.1-8b","messages":[{"role":"user","content":"question %d of the round"}],"max_tokens":%d,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`, s.asked, 1000+i%50)
		truth[i] = s.truth(body)
		all.Go(func() {
			told[i] = s.listen(region, body, func(route string) {
				mu.Lock()
				routes[route]++
				mu.Unlock()
				begun.Add(1)
			})
			ended[i].Store(true)
		})
	}
	eventually(t, patience, "every stream has begun", func() error {
		if n := begun.Load(); n < int64(s.n) {
			return fmt.Errorf("%d of %d have", n, s.n)
		}
		return nil
	})
	mu.Lock()
	victim := choose(routes)
	mu.Unlock()
	process, err := os.FindProcess(s.ps.PID(victim))
	if err != nil {
		t.Fatal(err)
	}
	s.killed = append(s.killed, victim.ID())
	live := make([]bool, s.n)
	for i := range live {
		live[i] = !ended[i].Load()
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	var hit, resumed, cut, wrong, lost, doubled, usage int
	for i := range told {
		got, want := told[i], truth[i]
		if live[i] && through(got.route, victim) {
			hit++
		}
		if got.resumed != "" {
			resumed++
		}
		switch {
		case got.failure != "" || got.finish == "":
			cut++
			t.Errorf("%s: cut after %d bytes of %d on %s: %s", victim.ID(), len(got.text), len(want.text), got.route, got.failure)
		case got.text != want.text || got.finish != want.finish:
			wrong++
			missing := (len(want.text) - len(got.text)) / 4
			lost, doubled = lost+max(missing, 0), doubled+max(-missing, 0)
			t.Errorf("%s: %q, want %q", victim.ID(), got.text, want.text)
		case got.prompt != want.prompt || got.completion != want.completion:
			usage++
			t.Errorf("%s: usage %d and %d, want %d and %d", victim.ID(), got.prompt, got.completion, want.prompt, want.completion)
		}
	}
	t.Logf("%-24s %8d %8d %8d %8d %8d %8d %8d %8d", what, s.n, hit, resumed, cut, wrong, lost, doubled, usage)
	if resumed == 0 {
		t.Errorf("%s died and no stream was resumed: %v", victim.ID(), routes)
	}
}

// through says that an answer came by way of a node.
func through(route string, n fleet.Node) bool {
	region, zone, worker := split(route)
	return region == n.Region && (n.Role == "regional" || zone == n.Zone && (n.Role == "local" || worker == n.Name))
}

// spilled waits until Tokyo's gateway sends requests to another region.
func (s *survivors) spilled(t *testing.T) {
	t.Helper()
	eventually(t, patience, "Tokyo's requests spill", func() error {
		s.asked++
		got := s.listen("tokyo", fmt.Sprintf(`{"model":"llama-3.1-8b","messages":[{"role":"user","content":"probe %d"}],"max_tokens":1,"stream":true}`, s.asked), func(string) {})
		if strings.HasPrefix(got.route, "tokyo/") || got.finish == "" {
			return fmt.Errorf("one went to %q: %s", got.route, got.failure)
		}
		return nil
	})
}

// listen sends one request and hears it out. begun is called once, with the way that the answer came, after its first token.
func (s *survivors) listen(region, body string, begun func(route string)) (told tale) {
	key, err := s.Key("acme")
	if err != nil {
		return tale{failure: err.Error()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.gateway(region).Addr["http"].String()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return tale{failure: err.Error()}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	return hear(req, begun)
}

var listener = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func hear(req *http.Request, begun func(route string)) (told tale) {
	resp, err := listener.Do(req)
	if err != nil {
		return tale{failure: err.Error()}
	}
	defer resp.Body.Close()
	told.route = resp.Header.Get(relay.HeaderRoute)
	if resp.StatusCode != http.StatusOK {
		told.failure = resp.Status
		begun(told.route)
		return told
	}
	var text strings.Builder
	in := bufio.NewScanner(resp.Body)
	ids, ends := map[string]bool{}, 0
	for in.Scan() {
		data, ok := bytes.CutPrefix(in.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if string(data) == "[DONE]" {
			ends++
			continue
		}
		var o struct {
			ID      string
			Choices []struct {
				Delta  struct{ Content string }
				Finish string `json:"finish_reason"`
			}
			Usage struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal(data, &o); err != nil {
			told.failure = "a torn event: " + string(data)
			continue
		}
		if ids[o.ID] = true; o.Error != nil {
			told.failure = string(o.Error)
		}
		for _, c := range o.Choices {
			if text.Len() == 0 && c.Delta.Content != "" {
				begun(told.route)
			}
			text.WriteString(c.Delta.Content)
			told.finish += c.Finish
		}
		told.prompt, told.completion = o.Usage.Prompt, o.Usage.Completion
	}
	told.text, told.resumed = text.String(), resp.Trailer.Get(relay.HeaderResumed)
	switch {
	case told.failure != "":
	case in.Err() != nil:
		told.failure = in.Err().Error()
	case ends != 1 || len(ids) != 1:
		told.failure = fmt.Sprintf("%d ends, %d ids", ends, len(ids))
	}
	return told
}

// undisturbed answers with what a worker says that nobody kills.
func undisturbed(t *testing.T) func(body string) tale {
	t.Helper()
	w, err := gpu.New(gpu.Config{Listen: "127.0.0.1:0", GPU: "H100", Model: "Llama-3.1-8B", Served: "llama-3.1-8b", Answers: fleet.Answers, Speed: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return func(body string) tale {
		req, err := http.NewRequest("POST", w.URL()+"/v1/chat/completions", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return hear(req, func(string) {})
	}
}
