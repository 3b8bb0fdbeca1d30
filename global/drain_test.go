package global

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// testDrainBelow drains what no spec lists: the region is asked, and a region that is silent is not in the way.
func (p *planet) testDrainBelow(t *testing.T) {
	c := p.admin(p.nodes[0])
	for path, want := range map[string]string{
		"virginia/a/w9": "its workers are w1, w2",
		"virginia/z":    "has no zone",
		"virginia/z/w1": "has no zone",
		"nowhere/a/w1":  "unknown region",
	} {
		_, err := c.Drain(t.Context(), admin.DrainRequest{Path: path})
		var e *admin.Error
		if !errors.As(err, &e) || e.Status != 400 || !strings.Contains(err.Error(), want) {
			t.Errorf("drain of %s: %v, want a refusal that says %q", path, err, want)
		}
	}
	_, err := c.Drain(t.Context(), admin.DrainRequest{Path: "virginia", ForMS: math.MaxInt64 / 1000})
	var e *admin.Error
	if !errors.As(err, &e) || e.Status != 400 || !strings.Contains(err.Error(), "longer than the longest") {
		t.Errorf("a drain of a duration that overflows: %v, want a refusal", err)
	}
	for _, path := range []string{"virginia/a/w2", "virginia/b"} {
		out, err := c.Drain(t.Context(), admin.DrainRequest{Path: path})
		if err != nil || out.Note != "" {
			t.Errorf("drain of %s: %+v, %v", path, out, err)
		}
	}
	// Zone b is declared, and nobody stands over it that could list its workers.
	p.drainUnchecked(t, "virginia/b/w1")
	p.gates["tokyo"].mute.Store(true)
	defer p.gates["tokyo"].mute.Store(false)
	begun := time.Now()
	p.drainUnchecked(t, "tokyo/a/w9")
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("a silent region held a drain up for %s", took)
	}
	for _, path := range []string{"virginia/a/w2", "virginia/b", "virginia/b/w1", "tokyo/a/w9"} {
		if _, err := c.Undrain(t.Context(), path, "test"); err != nil {
			t.Error(err)
		}
	}
}

func (p *planet) drainUnchecked(t *testing.T, path string) {
	t.Helper()
	out, err := p.admin(p.nodes[0]).Drain(t.Context(), admin.DrainRequest{Path: path})
	if err != nil || !strings.Contains(out.Note, "not looked for") || !listedIn(out.Drains, path) {
		t.Errorf("drain of %s: %+v, %v; want it taken with a note", path, out, err)
	}
}

func listedIn(drains []admin.Drain, path string) bool {
	for _, d := range drains {
		if d.Path == path {
			return true
		}
	}
	return false
}
