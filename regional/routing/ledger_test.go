package routing_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/routing"
)

// TestLedgerMatchesAPlainList holds that the sums are always those of the requests that are neither acknowledged nor
// finished, in any order.
func TestLedgerMatchesAPlainList(t *testing.T) {
	type open struct {
		n      uint64
		model  string
		tokens int64
	}
	paths := []capacity.Path{{Region: "r", Zone: "a", Instance: "1"}, {Region: "r", Zone: "b", Instance: "1"}}
	rapid.Check(t, func(t *rapid.T) {
		l, want := routing.NewLedger(), make([][]open, len(paths))
		var last uint64
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "child")
			n := rapid.Uint64Range(0, last+1).Draw(t, "ticket")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1, 2:
				o := open{model: rapid.SampledFrom([]string{"m", "n"}).Draw(t, "model"), tokens: rapid.Int64Range(1, 9).Draw(t, "tokens")}
				o.n = l.IssueTicket(paths[i], o.model, o.tokens, 2)
				if o.n <= last {
					t.Fatalf("ticket %d after %d", o.n, last)
				}
				last = o.n
				want[i] = append(want[i], o)
			case 3:
				l.FinishTicket(paths[i], n)
				for j := range want[i] {
					if want[i][j].n == n {
						want[i] = append(want[i][:j], want[i][j+1:]...)
						break
					}
				}
			case 4:
				l.RecordPrefilled(paths[i], n)
				for j := range want[i] {
					if want[i][j].n == n {
						want[i][j].tokens = 0
					}
				}
			case 5:
				l.AckThrough(paths[i], n)
				for len(want[i]) > 0 && want[i][0].n <= n {
					want[i] = want[i][1:]
				}
			}
			for c, p := range paths {
				for _, m := range []string{"m", "n"} {
					var sum routing.SentLoad
					for _, o := range want[c] {
						if o.model == m {
							sum.Tokens += o.tokens
							sum.KV += 2
							sum.Requests++
						}
					}
					if got := l.UncreditedLoad(p, m); got != sum {
						t.Fatalf("uncredited at %s for %s is %+v, want %+v", p, m, got, sum)
					}
				}
			}
		}
	})
}

func TestLedgerSteadyStateAllocatesNothing(t *testing.T) {
	l, p := routing.NewLedger(), capacity.Path{Region: "r", Zone: "z", Instance: "i"}
	for range 100 {
		l.FinishTicket(p, l.IssueTicket(p, "m", 1, 1))
	}
	if n := testing.AllocsPerRun(1000, func() { l.FinishTicket(p, l.IssueTicket(p, "m", 1, 1)) }); n != 0 {
		t.Fatalf("issue and finish allocate %v times, want 0", n)
	}
	if got := l.UncreditedLoad(p, "m"); got != (routing.SentLoad{}) {
		t.Fatalf("left over: %+v", got)
	}
	var none *routing.Ledger
	if none.UncreditedLoad(p, "m") != (routing.SentLoad{}) {
		t.Fatal("a nil ledger holds something")
	}
}
