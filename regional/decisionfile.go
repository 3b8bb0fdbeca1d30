package regional

import (
	"math/rand/v2"

	"github.com/spillway-lb/spillway/internal/decisionfile"
	"github.com/spillway-lb/spillway/regional/routing"
)

// newRouterConfig returns the configuration of the router. What decisions are made from is recorded only for a file.
func (g *Gateway) newRouterConfig() routing.RouterConfig {
	pcg := rand.NewPCG(rand.Uint64(), rand.Uint64())
	c := routing.RouterConfig{Name: g.cfg.Name, Boot: g.boot, Rand: rand.New(pcg), DecisionBytes: int(g.cfg.DecisionBytes)}
	if g.cfg.DecisionFile != "" {
		c.PCG = pcg
	}
	return c
}

// openDecisionFile opens the file of decisions, nil without one.
func (g *Gateway) openDecisionFile() (*decisionfile.FileWriter, error) {
	if g.cfg.DecisionFile == "" || g.cfg.DecisionBytes <= 0 {
		return nil, nil
	}
	return decisionfile.New(decisionfile.Config{Path: g.cfg.DecisionFile, MaxBytes: g.cfg.DecisionFileBytes, ReadNew: g.router.readNewDecisions, Restart: g.router.restartInputs, Log: g.log})
}

// readNewDecisions returns the records since some positions.
func (s *sharedRouter) readNewDecisions(p decisionfile.Positions) (out decisionfile.NewRecords) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost uint64
	out.States, out.Next.States, lost = s.router.States().PartsFrom(p.States)
	out.Decisions, out.Next.Decisions, out.Lost = s.decisions.PartsFrom(p.Decisions)
	out.Lost += lost
	return out
}

// restartInputs makes the next decision record what it is made from again.
func (s *sharedRouter) restartInputs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.router.RestartInputs()
}
