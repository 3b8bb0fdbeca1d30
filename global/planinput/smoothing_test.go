package planinput

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
)

// TestSmoothedValueFollowsStepsAndIgnoresNoise feeds a gateway's random demand rate to a smoothed value, and lets it
// step.
func TestSmoothedValueFollowsStepsAndIgnoresNoise(t *testing.T) {
	const perSecond = 8.0
	rng := rand.New(rand.NewPCG(1, 2))
	var s smoothedValue
	now, rate := time.Now(), perSecond
	tolerance := noiseDeviations / math.Sqrt(demandRateWindow.Seconds()*perSecond)
	var read, smoothed []float64
	run := func(seconds int, level float64) {
		read, smoothed = nil, nil
		for range seconds {
			now = now.Add(time.Second)
			n := 0.0
			for at := rng.ExpFloat64() / level; at < 1; at += rng.ExpFloat64() / level {
				n++
			}
			rate += (1 - math.Exp(-0.1)) * (n - rate)
			read, smoothed = append(read, rate), append(smoothed, s.updateValue(rate, tolerance, now))
		}
	}
	run(1200, perSecond)
	if in, out := standardDeviation(read[100:]), standardDeviation(smoothed[100:]); out > in/2 || math.Abs(meanOf(smoothed[100:])-perSecond) > 0.4 {
		t.Errorf("readings deviate by %.2f, the figure by %.2f around %.2f", in, out, meanOf(smoothed[100:]))
	}
	run(30, 2*perSecond)
	if smoothed[7] < 0.9*read[7] || smoothed[29] < 0.75*2*perSecond {
		t.Errorf("after a step: reading %.1f, smoothed %.1f", read, smoothed)
	}
	run(1, 2*perSecond)
	if was := s.value; s.updateValue(0.1, tolerance, now.Add(time.Second)) != 0.1 {
		t.Errorf("a fall from %.1f is not followed", was)
	}
}

// TestQueueingDelay: the load of many workers explains little wait, that of one worker much, and no demand none.
func TestQueueingDelay(t *testing.T) {
	one, many := &steer.ModelCapacity{Rate: 4000, Ready: 1}, &steer.ModelCapacity{Rate: 400_000, Ready: 100}
	if w := QueueingDelay(one, 0.85*4000, 0.85*2); math.Abs(w-0.5*0.85/0.15) > 1e-9 { // M/M/1
		t.Errorf("one worker: %.3f s", w)
	}
	if w := QueueingDelay(many, 0.85*400_000, 0.85*200); w > 0.01 {
		t.Errorf("a hundred workers: %.3f s", w)
	}
	if a, b := QueueingDelay(one, 1e9, 10), QueueingDelay(one, 0, 0); math.IsInf(a, 0) || a < 1 || b != 0 {
		t.Errorf("overloaded %v, idle %v", a, b)
	}
	if w := QueueingDelay(&steer.ModelCapacity{}, 1, 1); w != 0 {
		t.Errorf("no worker: %v", w)
	}
}

func meanOf(v []float64) (sum float64) {
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}

func standardDeviation(v []float64) float64 {
	m, sum := meanOf(v), 0.0
	for _, x := range v {
		sum += (x - m) * (x - m) / float64(len(v))
	}
	return math.Sqrt(sum)
}
