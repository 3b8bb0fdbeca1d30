package sim

import (
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/spec"
)

// halves gives every other request to the second tenant.
type halves struct{ Workload }

func (h halves) Pop() *load.Request {
	q := h.Workload.Pop()
	q.Tenant = int32(q.ID % 2)
	return q
}

// TestTheTenantsSeries: it never falls, and comes to the tokens that the engines have computed and made for all.
func TestTheTenantsSeries(t *testing.T) {
	s := chat(t, 2, 12, 5)
	s.Duration, s.Tenants, s.Workload = 30*time.Second, []string{"a", "b"}, halves{s.Workload}
	r := play(t, s)
	waited := false
	var last [2]Service
	for _, x := range r.Series {
		if len(x.Tenants) != 2 {
			t.Fatalf("at %v s there are %d tenants", x.At, len(x.Tenants))
		}
		for i, n := range x.Tenants {
			if n.Prompt < last[i].Prompt || n.Output < last[i].Output {
				t.Fatalf("at %v s tenant %d had %+v, and before %+v", x.At, i, n, last[i])
			}
			last[i] = n
			waited = waited || n.Waiting > 0
		}
	}
	var output, prompt uint64
	for _, w := range r.Workers {
		output, prompt = output+w.Output, prompt+w.Prompt-w.Cached
	}
	output -= uint64(len(r.Workers))                                                         // each has answered one request before there was any
	if got := uint64(last[0].Output + last[1].Output); got > output || got < output*99/100 { // of the last second nothing is told
		t.Errorf("tenants were given %d tokens, and workers made %d", got, output)
	}
	if got := uint64(last[0].Prompt + last[1].Prompt); !waited || got == 0 || got > prompt {
		t.Errorf("prompts of %d tokens were computed for tenants, and by workers %d; anybody waited: %v", got, prompt, waited)
	}
	if r.KVTokens != 2*30160 || r.LongestPrompt < 1000 {
		t.Errorf("the caches hold %d tokens, the longest prompt is of %d", r.KVTokens, r.LongestPrompt)
	}
}

// TestWhoNamesItsTimesIsServedByThem: batch requests that say when their first token should come are refused rather than
// answered late, and more of them are in time than of those who do not say it.
func TestWhoNamesItsTimesIsServedByThem(t *testing.T) {
	run := func(told bool) *Result {
		s := chat(t, 2, 20, 9)
		s.Duration, s.Told, s.Class = 40*time.Second, told, func(*load.Request) spec.Class { return spec.Batch }
		return play(t, s)
	}
	silent, told := run(false), run(true)
	before, _ := silent.TTFT.Quantile(0.9)
	if most, _ := told.TTFT.Quantile(0.9); most > 2*time.Second || before < 2*most || told.All.Refused == 0 {
		t.Errorf("one answer in ten begins after %v though clients said within 2 s, and after %v where they do not; %d were refused", most, before, told.All.Refused)
	}
	if told.Good < 2*silent.Good {
		t.Errorf("%d are in time where clients name theirs, and %d where they do not", told.Good, silent.Good)
	}
}
