package consensus

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxRolloutRegions is the most regions that a stage may name.
const maxRolloutRegions = 64

// RolloutConfig says how a spec is staged before it becomes permanent.
type RolloutConfig struct {
	// Regions lists the regions in which the staged spec is in force, in ascending order; none: everywhere.
	Regions []string `json:"regions,omitempty"`
	// Conditions says what rolls the spec back. It is opaque to this package.
	Conditions string `json:"guard,omitempty"`
	// Window is how long the stage lasts; 0: until an operator ends it.
	Window time.Duration `json:"window,omitempty"`
}

// Rollout is a staged spec. There is at most one.
type Rollout struct {
	RolloutConfig
	// Number is the raft index of the command that started it: no two stages share one.
	Number uint64 `json:"number"`
	// Body is the candidate, which replaces the spec in force when it is promoted. For a stage everywhere the
	// candidate is already in force, and Body is the spec to roll back to.
	Body []byte `json:"body"`
	// Elapsed is the part of the window that has passed, as counted by the leaders: it depends on no node's wall
	// clock.
	Elapsed time.Duration `json:"elapsed,omitempty"`
	// Figures are the leader's last measurements. They are opaque to this package.
	Figures string    `json:"figures,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"` // by the proposing node's clock; for people
}

// IsEverywhere reports whether the candidate is in force in all regions, and Body is the previous spec.
func (g *Rollout) IsEverywhere() bool { return len(g.Regions) == 0 }

// IncludesRegion reports whether a region uses the candidate while others do not.
func (g *Rollout) IncludesRegion(region string) bool { return slices.Contains(g.Regions, region) }

// describeRegions is the subject of an audit record.
func (g *Rollout) describeRegions() string {
	if g.IsEverywhere() {
		return "everywhere"
	}
	if more := len(g.Regions) - maxAuditRegions; more > 0 {
		return fmt.Sprintf("in %s and %d more", strings.Join(g.Regions[:maxAuditRegions], ", "), more)
	}
	return "in " + strings.Join(g.Regions, ", ")
}

// maxAuditRegions is how many regions an audit record names.
const maxAuditRegions = 8

func (t *RolloutConfig) checkBounds() error {
	switch {
	case len(t.Regions) > maxRolloutRegions:
		return fmt.Errorf("a spec may be staged in at most %d regions", maxRolloutRegions)
	case len(t.Conditions) > maxReason:
		return fmt.Errorf("guard may have at most %d bytes", maxReason)
	case t.Window < 0:
		return fmt.Errorf("the window of a stage is negative: %s", t.Window)
	}
	for i, name := range t.Regions {
		if name == "" || len(name) > maxName || i > 0 && t.Regions[i-1] >= name {
			return fmt.Errorf("the regions of a stage must have names, in ascending order and each once: %.64q", name)
		}
	}
	return nil
}

func (g *Rollout) checkFields() error {
	if g == nil {
		return nil
	}
	if g.Number == 0 || len(g.Body) == 0 || g.Elapsed < 0 {
		return fmt.Errorf("stage %d is malformed: it has no number, no spec, or a negative elapsed time (%s)", g.Number, g.Elapsed)
	}
	return g.RolloutConfig.checkBounds()
}
