package resume

import (
	"testing"
	"time"
)

func TestMassLossBudgetAllowsEachStreamOnce(t *testing.T) {
	var a MassLossBudget
	take := func(now time.Time, open int) (n int) {
		for range 1000 {
			if a.TakeResume(now, open) {
				n++
			}
		}
		return n
	}
	now := time.Unix(1, 0)
	if n := take(now, 200); n != 200 {
		t.Errorf("%d of 200 streams were resumed", n)
	}
	if n := take(now.Add(time.Second), 200); n != 10 {
		t.Errorf("a second after that %d were", n)
	}
	if n := take(now.Add(time.Hour), 200); n != 200 {
		t.Errorf("an hour after that %d were", n)
	}
	if n := take(now.Add(-time.Hour), 200); n != 0 {
		t.Errorf("by a clock that went back %d were", n)
	}
}
