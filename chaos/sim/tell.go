package sim

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// What an uplink's child does (internal/uplink): it states its capacity each 250 ms, and each 100 ms for a second after
// it had something new to say.
const (
	tellEvery  = int64(250 * time.Millisecond)
	tellMoving = int64(100 * time.Millisecond)
	movingFor  = int64(time.Second)
)

// teller makes an instance's statements.
type teller struct {
	path     capacity.Path
	endpoint string
	boot     uint64
	last     *capacity.Summary
	moved    int64
}

// state makes the next statement of what the instance says now, and when the one after it is due.
func (t *teller) state(s capacity.Summary, now int64) (said *capacity.Summary, next int64) {
	var seq uint64
	if t.last != nil {
		seq, s = t.last.Seq, capacity.Steady(t.last, &s)
	}
	s.Path, s.Endpoint, s.Boot, s.Seq = t.path, t.endpoint, t.boot, seq+1
	s = capacity.Fit(s)
	if t.last == nil || !same(t.last, &s) {
		t.moved = now
	}
	t.last = &s
	if now-t.moved < movingFor {
		return &s, now + tellMoving
	}
	return &s, now + tellEvery
}

// same says that a statement has nothing new. The mark runs like a clock.
func same(old, s *capacity.Summary) bool {
	x := *s
	x.Seq, x.Holding.Mark, x.Holding.AgeMillis = old.Seq, old.Holding.Mark, old.Holding.AgeMillis
	return x.Equal(*old)
}
