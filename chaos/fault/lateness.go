package fault

import (
	"sync/atomic"
	"time"
)

// Lateness is how late a relay delivered by itself: a busy machine bends the delays of links, so that a drill's figures
// are void.
type Lateness struct {
	Count uint64        `json:"count"` // of deliveries since the last reading
	P99   time.Duration `json:"p99"`   // upper end of its bucket
	Worst time.Duration `json:"worst"`
}

// latenessBounds are the upper ends of the buckets.
var latenessBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second,
}

// latenessMeter counts deliveries by how late they were.
type latenessMeter struct {
	buckets [len(latenessBounds) + 1]atomic.Uint64
	worst   atomic.Int64
}

func (m *latenessMeter) addLateness(late time.Duration) {
	i := 0
	for i < len(latenessBounds) && late > latenessBounds[i] {
		i++
	}
	m.buckets[i].Add(1)
	for w := m.worst.Load(); int64(late) > w && !m.worst.CompareAndSwap(w, int64(late)); w = m.worst.Load() {
	}
}

// readLateness returns the figures since the last call.
func (m *latenessMeter) readLateness() Lateness {
	var counts [len(latenessBounds) + 1]uint64
	out := Lateness{Worst: time.Duration(m.worst.Swap(0))}
	for i := range m.buckets {
		counts[i] = m.buckets[i].Swap(0)
		out.Count += counts[i]
	}
	var sum uint64
	for i, n := range counts {
		if sum += n; sum*100 >= out.Count*99 && out.Count > 0 {
			out.P99 = out.Worst
			if i < len(latenessBounds) {
				out.P99 = min(latenessBounds[i], out.Worst)
			}
			break
		}
	}
	return out
}
