package global

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// freeze stops a gateway in the middle of whatever it says; its sessions stay open and its transport answers pings.
func (g *gate) freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.frozen = make(chan struct{})
}

func (g *gate) thaw() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.frozen != nil {
		close(g.frozen)
		g.frozen = nil
	}
}

func (g *gate) hold() {
	g.mu.Lock()
	frozen := g.frozen
	g.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (g *gate) cutAll(cut bool) {
	for _, l := range g.links {
		l.cut.Store(cut)
	}
}

// TestSilenceIsLoss loses a region without a word: no session is closed, nothing says goodbye.
func TestSilenceIsLoss(t *testing.T) {
	p := newPlanet(t)
	p.settle()
	eventually(t, 5*time.Second, "each client has its own region", p.allNearest)
	for name, c := range map[string]struct{ fall, rise func(*gate) }{
		"frozen": {(*gate).freeze, (*gate).thaw},
		"cut":    {func(g *gate) { g.cutAll(true) }, func(g *gate) { g.cutAll(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			g := p.gates["tokyo"]
			defer c.rise(g)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			asked, failed, done := flood(ctx, p.nodes[0], clients["tokyo"])
			c.fall(g)
			gone := eventually(t, 2*time.Second, "no node answers with a region that has fallen silent", func() bool {
				for _, s := range p.alive() {
					if r := region(s, clients["tokyo"]); r != "virginia" && r != "frankfurt" {
						return false
					}
				}
				return true
			})
			if gone < 500*time.Millisecond {
				t.Errorf("half a second of silence is taken for a loss after %s", gone)
			}
			if !p.answers(clients["virginia"], "virginia") || !p.answers(clients["frankfurt"], "frankfurt") {
				t.Error("clients of other regions moved")
			}
			for _, s := range p.alive() {
				for _, peer := range s.directive(capacity.Path{Region: "virginia", Instance: "gv"}).Peers {
					if peer.Region == "tokyo" && len(peer.Gateways) != 0 {
						t.Errorf("%s offers gateways of a silent region to spill to", s.cfg.Name)
					}
				}
			}
			eventually(t, 3*time.Second, "the plan does without it", func() bool {
				return strings.Join(p.nodes[0].view.Load().plan.Without, " ") == "tokyo"
			})
			c.rise(g)
			// A gateway that was cut off for as long as this still has its session, or dials within its backoff.
			back := eventually(t, 6*time.Second, "it is answered again when it speaks", func() bool { return p.answers(clients["tokyo"], "tokyo") })
			stop()
			done.Wait()
			if failed.Load() != 0 || asked.Load() < 20 {
				t.Errorf("%d of %d queries failed", failed.Load(), asked.Load())
			}
			t.Logf("out of every answer %s after it fell silent, back %s after it spoke; %d queries, none failed", gone, back, asked.Load())
			eventually(t, 3*time.Second, "the plan counts on it again", func() bool { return len(p.nodes[0].view.Load().plan.Without) == 0 })
		})
	}
}
