package lab

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

const (
	// recoveryWindow is over how many seconds requests are counted together, and recoveryLoss how much less of them may meet
	// the SLO than before a fault.
	recoveryWindow = 3
	recoveryLoss   = 0.05
)

// recovery is how long after something broke or was mended the last stretch began in which notably fewer requests met the
// SLO than before anything broke, plus that stretch: the seconds until goodput is back for good. The longest of all faults.
func recovery(r *sim.Result) (float64, string) {
	if len(r.Faults) == 0 {
		return 0, "nothing broke"
	}
	var moments []int
	for i := range r.Faults {
		f := &r.Faults[i]
		moments = append(moments, seconds(f.At))
		if f.For > 0 {
			moments = append(moments, seconds(f.At+f.For))
		}
	}
	first := moments[0]
	for _, m := range moments {
		first = min(first, m)
	}
	// What arrives in the last moments is what its answers make of it, as everywhere.
	end := len(r.Seconds)
	calm := attained(r.Seconds, end-seconds(r.Window), first)
	if calm < 0 {
		return 0, fmt.Sprintf("something broke at %ds, before anything was measured", first)
	}
	longest := 0.0
	for _, m := range moments {
		until := end // or what happens next
		for _, o := range moments {
			if o > m {
				until = min(until, o)
			}
		}
		for s := m; s < until; s++ {
			stop := min(s+recoveryWindow, until)
			if a := attained(r.Seconds, s, stop); a >= 0 && a < calm-recoveryLoss {
				longest = max(longest, float64(stop-m))
			}
		}
	}
	return longest, ""
}

func seconds(d time.Duration) int { return int(d / time.Second) }

// attained is the part of the requests of some seconds that met the SLO; -1 where there were none.
func attained(list []sim.Second, from, to int) float64 {
	var sent, good int32
	for s := max(from, 0); s < min(to, len(list)); s++ {
		sent, good = sent+list[s].Sent, good+list[s].Good
	}
	if sent == 0 {
		return -1
	}
	return float64(good) / float64(sent)
}
