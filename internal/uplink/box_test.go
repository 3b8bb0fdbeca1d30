package uplink

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// TestBoxesAgree runs an outbox against an inbox over a link that loses, delays and reorders, with random statements.
// Whatever the parent holds is what the child once said under that number, or, when statements come in parts, is made of
// things the child said up to then; the window and the one snapshot under way are never exceeded; and once the link is
// good, the parent comes to hold the newest statement.
func TestBoxesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		crowded := rapid.Bool().Draw(t, "crowded")
		models := 3
		if crowded {
			models = 40
		}
		var out outbox
		in := inbox{path: l2, boot: 1, most: 1 << 63}
		now, seq, boot := time.Unix(0, 0), uint64(0), uint64(1)
		said := map[uint64]*capacity.Summary{}
		var latest *statement
		var flying [][]byte
		var snap *capacity.Summary
		check := func(s *capacity.Summary) {
			if s == nil {
				return
			}
			if want := said[s.Seq]; !crowded && !s.Equal(*want) {
				t.Fatalf("holds %+v, said %+v", s, want)
			}
			for i := range s.Models {
				if m := &s.Models[i]; uint64(m.Backlog) > s.Seq || said[uint64(m.Backlog)].Model(m.Name) == nil {
					t.Fatalf("model %s of statement %d was never in statement %d", m.Name, s.Seq, m.Backlog)
				}
			}
		}
		deliver := func(i int) {
			s, err := in.delta(flying[i][1:])
			if err != nil {
				t.Fatal(err)
			}
			check(s)
			if in.newest != nil {
				out.heard(in.newest.Seq)
			}
		}
		land := func() {
			b, err := capacity.Encode(snap)
			if err != nil {
				t.Fatal(err)
			}
			s, err := in.snapshot(b)
			if err != nil {
				t.Fatal(err)
			}
			check(s)
			out.settle(snap, now)
			snap = nil
		}
		step := func(d time.Duration) {
			now, seq = now.Add(d), seq+1
			s := capacity.Summary{Path: l2, Boot: boot, Seq: seq}
			for i := range models {
				if rapid.IntRange(0, 9).Draw(t, "absent") > 0 {
					s.Models = append(s.Models, capacity.Model{Name: fmt.Sprintf("m%02d", i), Backlog: int64(seq), Total: 1})
				}
			}
			said[seq] = &s
			latest = follow(latest, &s)
			out.offer(latest)
			if b := out.datagram(now); b != nil {
				if len(b) > maxDatagram {
					t.Fatalf("datagram of %d bytes", len(b))
				}
				flying = append(flying, b)
			}
			if len(out.sent) > window+1 {
				t.Fatalf("%d datagrams under way", len(out.sent))
			}
			if next := out.snapshot(now); next != nil {
				if snap != nil {
					t.Fatal("two snapshots under way")
				}
				snap = next
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			step(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1, 2, 3, 4:
				if len(flying) > 0 {
					i := rapid.IntRange(0, len(flying)-1).Draw(t, "which")
					deliver(i)
					flying = slices.Delete(flying, i, i+1)
				}
			case 5:
				flying = nil
			case 6, 7:
				if snap != nil {
					land()
				}
			case 8:
				if snap != nil {
					out.settle(nil, now)
					snap = nil
				}
			case 9:
				boot++
			}
		}
		flying = nil
		for range 30 { // a good link, on which nothing more changes but the number
			step(2 * time.Second)
			if snap != nil {
				land()
			}
			for i := range flying {
				deliver(i)
			}
			flying = nil
		}
		if in.newest == nil || in.newest.Boot != boot || in.newest.Seq != seq {
			t.Fatalf("holds %+v, the newest is %d/%d", in.newest, boot, seq)
		}
	})
}

func TestInboxKeepsTwoBases(t *testing.T) {
	in := inbox{path: l2, boot: 1, most: 1 << 63}
	statement := func(seq uint64) *capacity.Summary {
		return &capacity.Summary{Path: l2, Boot: 1, Seq: seq, Models: []capacity.Model{{Name: fmt.Sprint("m", seq)}}}
	}
	for seq := uint64(1); seq <= 3; seq++ {
		b, err := capacity.Encode(statement(seq))
		if err != nil {
			t.Fatal(err)
		}
		if s, err := in.snapshot(b); err != nil || s == nil {
			t.Fatal(s, err)
		}
	}
	for base, want := range map[uint64]bool{1: false, 2: true, 3: true} {
		next := statement(10 + base)
		d := capacity.Diff(statement(base), next)
		b, err := capacity.EncodeDelta(&d)
		if err != nil {
			t.Fatal(err)
		}
		try := in
		s, err := try.delta(b)
		if err != nil || (s != nil) != want {
			t.Errorf("delta on snapshot %d: %+v %v", base, s, err)
		}
	}
}

// many is a statement of 40 models, too many for a datagram.
func many(seq uint64) *capacity.Summary {
	s := &capacity.Summary{Path: l2, Boot: 1, Seq: seq}
	for i := range 40 {
		s.Models = append(s.Models, capacity.Model{Name: fmt.Sprintf("model-%02d-with-a-name-of-some-length", i), Backlog: int64(seq), Total: 1})
	}
	return s
}

// TestPartsWaitForASnapshot: a part sent first would look like a poor region.
func TestPartsWaitForASnapshot(t *testing.T) {
	var out outbox
	now := time.Unix(0, 0)
	out.offer(follow(nil, many(1)))
	if out.datagram(now) != nil || out.snapshot(now) == nil {
		t.Fatal("the first statement of 40 models must go as a snapshot alone")
	}
	out.settle(many(1), now)
	out.offer(follow(nil, many(2)))
	if out.datagram(now) == nil {
		t.Fatal("after it, parts may go")
	}
}

// TestPartsLieOverTheNewest: two parts in turn both count, although both build on one snapshot.
func TestPartsLieOverTheNewest(t *testing.T) {
	var out outbox
	now := time.Unix(0, 0)
	in := inbox{path: l2, boot: 1, most: 1 << 63}
	b, err := capacity.Encode(many(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.snapshot(b); err != nil {
		t.Fatal(err)
	}
	out.settle(many(1), now)
	news := func() (n int) {
		for _, m := range in.newest.Models {
			if m.Backlog > 1 {
				n++
			}
		}
		return n
	}
	for seq := uint64(2); seq <= 3; seq++ {
		before := news()
		out.offer(follow(nil, many(seq)))
		if s, err := in.delta(out.datagram(now)[1:]); err != nil || len(s.Models) != 40 || news() <= before {
			t.Fatalf("part %d: %d models are news, before %d, %v", seq, news(), before, err)
		}
	}
}

// TestProbesDouble: while nothing is confirmed, four datagrams go at once and then one after each doubled wait, up to a
// second; a confirmation opens the window again.
func TestProbesDouble(t *testing.T) {
	out := outbox{patience: 100 * time.Millisecond}
	now := time.Unix(0, 0)
	seq := uint64(0)
	next := func() (waited time.Duration) {
		for ; ; waited += 10 * time.Millisecond {
			seq++
			out.offer(follow(nil, &capacity.Summary{Path: l2, Boot: 1, Seq: seq}))
			if out.datagram(now.Add(waited)) != nil {
				now = now.Add(waited)
				return waited
			}
		}
	}
	for range 2 {
		var waits []int64
		for range 9 {
			waits = append(waits, next().Milliseconds())
		}
		if want := []int64{0, 0, 0, 0, 100, 200, 400, 800, 1000}; !slices.Equal(waits, want) {
			t.Errorf("waits %v ms, want %v", waits, want)
		}
		out.heard(seq)
	}
}

func TestBackoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := seeded(rapid.Uint64().Draw(t, "seed"))
		var b backoff
		last := time.Duration(0)
		for range 30 {
			d := b.next(rng)
			if d < backoffLeast || d > backoffMost || d > max(3*last, 2*backoffLeast) {
				t.Fatalf("%v after %v", d, last)
			}
			last = d
		}
		b.reset()
		if d := b.next(rng); d > 2*backoffLeast {
			t.Fatalf("%v after reset", d)
		}
	})
}

func TestRefusalsAreBounded(t *testing.T) {
	var log record
	r := refusals{log: log.logger()}
	for i := range 3 * maxLogged {
		r.refuse(fmt.Sprint(i), reasonScope, "x")
	}
	if r.total() != 3*maxLogged || len(r.logged) != maxLogged || log.count("refused") != maxLogged {
		t.Fatal(r.total(), len(r.logged))
	}
}
