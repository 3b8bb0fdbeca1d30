package sched

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/local/prefix"
)

// prefixSketch is the reported sketch of one model's cached prefixes.
type prefixSketch struct {
	hotPrefixes *prefix.HotPrefixes
	lastBuilt   []capacity.PrefixEntry
	builtAt     time.Time
}

// sketchInterval is how often a model's prefix sketch is rebuilt. Hot prefixes change slowly, and an unchanged sketch is not
// sent again.
const sketchInterval = time.Second

// buildPrefixes returns the sketch for a summary, rebuilt at most every sketchInterval. The slice does not change afterwards.
func (s *prefixSketch) buildPrefixes(x *prefix.Index, now time.Time) []capacity.PrefixEntry {
	if s.hotPrefixes == nil {
		return nil
	}
	if age := now.Sub(s.builtAt); age >= sketchInterval || age < 0 {
		s.lastBuilt, s.builtAt = s.hotPrefixes.TopPrefixes(x, capacity.MaxPrefixes), now
	}
	return s.lastBuilt
}
