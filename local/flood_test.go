package local

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/explain"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

var (
	chatPrompt = load.Lengths{Median: 500, P90: 1500, Max: 4000}
	chatOutput = load.Lengths{Median: 60, P90: 120, Max: 200}
)

// mix is a light tenant's requests beside one that floods.
type mix struct {
	name        string
	prompt, out load.Lengths // of the flood
	class       spec.Class   // of the flood
	floods      int          // tenants that flood
	times       float64      // what they ask for together, in zones
	light       float64      // what the light one asks for, in zones
	burst       int
	within      float64 // times alone that the light tenant's p99 may take
}

func (m mix) orUsual() mix {
	if m.prompt.Median == 0 {
		m.prompt = chatPrompt
	}
	if m.out.Median == 0 {
		m.out = chatOutput
	}
	m.floods = max(m.floods, 1)
	if m.times == 0 {
		m.times = 5
	}
	if m.light == 0 {
		m.light = 0.25
	}
	return m
}

// eachWorker is how many such chats a second one worker can do: chaos/compare's capacity.
var eachWorker = map[string]float64{"L4": 3.06, "H100": 36.5}

const (
	floodWorkers = 4
	floodFrom    = 5 * time.Second
	floodCount   = 10 * time.Second
	floodCounted = 600 // requests of the light tenant
)

// play plays a mix and the light tenant alone, and returns the light tenant's times to first token and the flood's answers
// per second.
func (m mix) play(t *testing.T, kind string, seed uint64) (alone, beside []time.Duration, served float64) {
	t.Helper()
	zone := eachWorker[kind] * floodWorkers
	counted := time.Duration(floodCounted / (m.light * zone) * float64(time.Second))
	end := floodCount + counted
	light := func() *flow {
		return &flow{tenant: "light", class: spec.Interactive, rate: m.light * zone, until: end, prompt: chatPrompt, out: chatOutput, burst: m.burst, seed: seed}
	}
	by, next := light(), light()
	all := []*flow{next}
	for i := range m.floods {
		all = append(all, &flow{
			tenant: fmt.Sprint("flood", i), class: m.class, rate: m.times * zone / float64(m.floods), from: floodFrom, until: end,
			prompt: m.prompt, out: m.out, seed: seed + 1000*uint64(i+1),
		})
	}
	inFloodZone(t, kind, floodWorkers, floodCount, by)
	inFloodZone(t, kind, floodWorkers, floodCount, all...)
	if by.lost+next.lost > 0 || len(next.ttft) != len(by.ttft) {
		t.Errorf("%s on %s, seed %d: %d of the light tenant's answered alone, %d beside", m.name, kind, seed, len(by.ttft), len(next.ttft))
	}
	for _, fl := range all[1:] {
		served += float64(fl.served) / counted.Seconds()
	}
	return by.ttft, next.ttft, served
}

// pooled plays a mix with several seeds and returns how many times as long as alone the light tenant's p99 took, over all.
func (m mix) pooled(t *testing.T, kind string, seeds int) float64 {
	t.Helper()
	var alone, beside []time.Duration
	text, served := "", 0.0
	for seed := range uint64(seeds) {
		a, b, s := m.play(t, kind, seed+1)
		text += fmt.Sprintf(" %.2f", high(b)/high(a))
		alone, beside, served = append(alone, a...), append(beside, b...), served+s/float64(seeds)
	}
	slices.Sort(alone)
	slices.Sort(beside)
	r := high(beside) / high(alone)
	t.Logf("%-5s %-30s p99 %.3f s alone, %.3f s beside: %.2f times (by seed%s); the flood had %.1f answers/s", kind, m.name, high(alone), high(beside), r, text, served)
	return r
}

// high is the p99 of an ascending list, in seconds.
func high(list []time.Duration) float64 {
	if len(list) == 0 {
		return 0
	}
	return list[min(len(list)*99/100, len(list)-1)].Seconds()
}

// TestAFloodIsNoticedLittleOnEveryGPU: a tenant asks for a quarter of a zone, which is half of its part, and another floods
// at ten times its own. The p99 of the first one's time to first token is at most 1.2 times what it is alone, over 5 runs.
// Arrivals, engines and choices are drawn from the seed and time is virtual, so that a busy machine changes nothing.
func TestAFloodIsNoticedLittleOnEveryGPU(t *testing.T) {
	for _, kind := range []string{"L4", "H100"} {
		if r := (mix{name: "chats"}).orUsual().pooled(t, kind, 5); r > 1.2 {
			t.Errorf("on %s: %.2f times", kind, r)
		}
	}
}

// TestFloodsOfOtherKinds: other floods, and other light tenants. Where the bound is over 1.2 it is not met: long prompts pass
// through whole steps, very short ones make large batches, two floods are entitled to two thirds, and bursts meet every worker.
func TestFloodsOfOtherKinds(t *testing.T) {
	if raceOn {
		t.Skip("it has one goroutine and takes minutes under the race detector")
	}
	for _, m := range []mix{
		{name: "long answers", out: load.Lengths{Median: 400, P90: 800, Max: 1600}, within: 1.2},
		{name: "long prompts", prompt: load.Lengths{Median: 3000, P90: 6000, Max: 12000}, within: 2},
		{name: "short prompts", prompt: load.Lengths{Median: 100, P90: 200, Max: 400}, within: 3},
		{name: "batch class", class: spec.Batch, within: 1.2},
		{name: "no more than the zone", times: 1, within: 1.2},
		{name: "half more than the zone", times: 1.5, within: 1.2},
		{name: "two floods", floods: 2, within: 4},
		{name: "light tenant in bursts of 8", burst: 8, within: 2},
		{name: "light tenant of a twentieth", light: 0.05, within: 1.2},
	} {
		if r := m.orUsual().pooled(t, "H100", 2); r > m.within {
			t.Errorf("%s: %.2f times, over %.1f", m.name, r, m.within)
		}
	}
}

// TestExplainSaysWhoIsAGuest asks in the middle of a flood why each of the two would be placed where.
func TestExplainSaysWhoIsAGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		light := &flow{tenant: "light", class: spec.Interactive, rate: 3, until: time.Minute, prompt: chatPrompt, out: chatOutput, seed: 1}
		flood := &flow{tenant: "flood", class: spec.Interactive, rate: 60, until: time.Minute, prompt: chatPrompt, out: chatOutput, seed: 2}
		z := newFloodZone(t, "L4", floodWorkers, light, flood)
		for time.Since(z.begun) < 8*time.Second {
			time.Sleep(10 * time.Millisecond)
			z.tick(time.Now())
		}
		notes := func(tenant string) string {
			v := &visit{model: floodModel, estimate: 500, class: spec.Interactive, arrived: time.Now(), excluded: [2]int32{-1, -1}}
			v.hop.Tenant = tenant
			v.r = &http.Request{Method: http.MethodPost, URL: pathURL(openai.PathChat), Header: http.Header{}}
			var rec explain.Record
			z.f.explain(v, &rec, time.Now())
			return strings.Join(rec.Notes, "\n")
		}
		if got := notes("flood"); !strings.Contains(got, "tenant flood has more than its part") {
			t.Errorf("of the flood it is said:\n%s", got)
		}
		if got := notes("light"); strings.Contains(got, "more than its part") {
			t.Errorf("of the light tenant it is said:\n%s", got)
		}
	})
}
