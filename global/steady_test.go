package global

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// TestSteady feeds a gateway's rate of demand, as chance makes it, to a figure, and lets it step.
func TestSteady(t *testing.T) {
	const perSecond = 8.0
	rng := rand.New(rand.NewPCG(1, 2))
	var s steady
	now, rate := time.Now(), perSecond
	tolerance := chance / math.Sqrt(demandWindow.Seconds()*perSecond)
	var read, told []float64
	run := func(seconds int, level float64) {
		read, told = nil, nil
		for range seconds {
			now = now.Add(time.Second)
			n := 0.0
			for at := rng.ExpFloat64() / level; at < 1; at += rng.ExpFloat64() / level {
				n++
			}
			rate += (1 - math.Exp(-0.1)) * (n - rate)
			read, told = append(read, rate), append(told, s.next(rate, tolerance, now))
		}
	}
	run(1200, perSecond)
	if in, out := deviation(read[100:]), deviation(told[100:]); out > in/2 || math.Abs(mean(told[100:])-perSecond) > 0.4 {
		t.Errorf("readings deviate by %.2f, the figure by %.2f around %.2f", in, out, mean(told[100:]))
	}
	run(30, 2*perSecond)
	if told[7] < 0.9*read[7] || told[29] < 0.75*2*perSecond {
		t.Errorf("after a step: read %.1f, told %.1f", read, told)
	}
	run(1, 2*perSecond)
	if was := s.value; s.next(0.1, tolerance, now.Add(time.Second)) != 0.1 {
		t.Errorf("a fall from %.1f is not followed", was)
	}
}

// TestQueueing: what many workers' load explains is little, what one worker's does is much, and nobody's demand nothing.
func TestQueueing(t *testing.T) {
	one, many := &steer.Model{Rate: 4000, Ready: 1}, &steer.Model{Rate: 400_000, Ready: 100}
	if w := queueing(one, 0.85*4000, 0.85*2); math.Abs(w-0.5*0.85/0.15) > 1e-9 { // M/M/1
		t.Errorf("one worker: %.3f s", w)
	}
	if w := queueing(many, 0.85*400_000, 0.85*200); w > 0.01 {
		t.Errorf("a hundred workers: %.3f s", w)
	}
	if a, b := queueing(one, 1e9, 10), queueing(one, 0, 0); math.IsInf(a, 0) || a < 1 || b != 0 {
		t.Errorf("overloaded %v, idle %v", a, b)
	}
	if w := queueing(&steer.Model{}, 1, 1); w != 0 {
		t.Errorf("no worker: %v", w)
	}
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}

func deviation(v []float64) float64 {
	m, sum := mean(v), 0.0
	for _, x := range v {
		sum += (x - m) * (x - m) / float64(len(v))
	}
	return math.Sqrt(sum)
}
