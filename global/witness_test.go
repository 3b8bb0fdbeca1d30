package global

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHearsTellsRegionsWithLikeNamesApart(t *testing.T) {
	said := testimony{Heard: []string{"eu-west/g1", "eu/g1", "us-east/g2"}}
	for region, want := range map[string]bool{"eu": true, "eu-west": true, "us-east": true, "us": false, "e": false, "": false, "zz": false, "eu/g1": false} {
		if got := said.hears(region); got != want {
			t.Errorf("hears(%q) is %v, want %v", region, got, want)
		}
	}
}

// TestQuorum states the two rules: one fresh view that disagrees keeps a region in the answers, and only a majority
// declares it dead.
func TestQuorum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		voters := rapid.IntRange(1, 7).Draw(t, "voters")
		q := quorum{self: "0", others: map[string]testimony{}}
		for i := range voters {
			q.voters = append(q.voters, fmt.Sprint(i))
		}
		hear, deaf := 0, 1 // this node does not hear it
		for i := range rapid.IntRange(0, voters-1).Draw(t, "present") {
			x := testimony{Settled: rapid.Bool().Draw(t, "settled")}
			if rapid.Bool().Draw(t, "hears") {
				x.Heard = []string{"r/g"}
				hear++
			} else if x.Settled {
				deaf++
			}
			q.others[fmt.Sprint(i+1)] = x
		}
		q.others["edge"] = testimony{Settled: true} // without a vote: its silence does not count
		if got := len(q.hearing("r")); got != hear {
			t.Fatalf("%d nodes hear it, want %d", got, hear)
		}
		if got := q.dead("r"); got != (deaf > voters/2) {
			t.Fatalf("dead is %v with %d deaf of %d voters", got, deaf, voters)
		}
	})
}

func TestTestimonyGrowsOld(t *testing.T) {
	woken := 0
	b := newBench(func() { woken++ })
	body, _ := json.Marshal(testimony{Settled: true, Heard: []string{"b/g", "a/g"}})
	b.take("g2", body)
	b.take("g2", body)
	b.take("g3", []byte("rubbish"))
	now := time.Now()
	if woken != 1 || len(b.fresh(now)) != 1 || !slices.IsSorted(b.fresh(now)["g2"].Heard) {
		t.Fatalf("woken %d times, holds %v", woken, b.fresh(now))
	}
	if got := b.fresh(now.Add(testimonyLasts + time.Second)); len(got) != 0 {
		t.Fatalf("old testimony still counts: %v", got)
	}
}

func FuzzTestimony(f *testing.F) {
	f.Add([]byte(`{"settled":true,"heard":["a/g1","b/g2"]}`))
	f.Add([]byte(`{"heard":["b","a","a/"]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		x, err := decodeTestimony(body)
		if err == nil && !slices.IsSorted(x.Heard) {
			t.Fatal("testimony out of order")
		}
		for _, name := range x.Heard {
			if region, gw, ok := strings.Cut(name, "/"); ok && gw != "" && !x.hears(region) {
				t.Fatalf("%q is listed and region %q not heard", name, region)
			}
		}
	})
}

// TestOneDeafNodeKillsNoRegion cuts a region's gateway off from one node, the leader: nobody's clients move and the plan
// keeps the region. Cut off from two of three, it is planned away, and from all, it is gone from every answer.
func TestOneDeafNodeKillsNoRegion(t *testing.T) {
	p := newPlanet(t)
	p.settle()
	eventually(t, 5*time.Second, "each client has its own region", p.allNearest)
	lead := p.leader()
	g := p.gates["tokyo"]
	r := lead.view.Load().region("tokyo")
	g.links[lead.cfg.Name].cut.Store(true)
	eventually(t, 5*time.Second, "the leader hears the region no longer", func() bool { return lead.view.Load().regions[r].unheard })
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		v := lead.view.Load()
		if !p.answers(clients["tokyo"], "tokyo") || v.gone.Has(r) || v.dead.Has(r) || len(v.plan.Without) != 0 {
			t.Fatalf("one deaf node was enough: gone %v, dead %v, plan without %v, heard by %v", v.gone.Has(r), v.dead.Has(r), v.plan.Without, v.regions[r].heardBy)
		}
	}
	st, err := p.admin(lead).Status(t.Context())
	if err != nil || !strings.Contains(strings.Join(st.Notes, "\n"), "tokyo: not heard here, but by") {
		t.Errorf("status of the deaf node notes %q (%v)", st.Notes, err)
	}
	second := ""
	for _, s := range p.nodes {
		if s != lead && second == "" {
			second = s.cfg.Name
			g.links[second].cut.Store(true)
		}
	}
	eventually(t, 5*time.Second, "two of three plan without it", func() bool {
		return strings.Join(lead.view.Load().plan.Without, " ") == "tokyo"
	})
	g.cutAll(true)
	eventually(t, 5*time.Second, "cut off from all it is in nobody's answers", func() bool {
		return !slices.ContainsFunc(p.alive(), func(s *Server) bool { return !s.view.Load().gone.Has(r) })
	})
	g.cutAll(false)
	eventually(t, 15*time.Second, "it comes back", func() bool {
		return len(lead.view.Load().plan.Without) == 0 && p.answers(clients["tokyo"], "tokyo")
	})
}
