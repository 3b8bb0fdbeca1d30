package forward

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
)

// TestBodyMemoryIsBounded: all requests together take at most the limit, those of one tenant at most half of
// it, and released memory is available to all.
func TestBodyMemoryIsBounded(t *testing.T) {
	m := NewBodyMemory(100)
	charges := map[string]*BodyCharge{}
	for name, owner := range map[string]string{"a": "acme", "a2": "acme", "b": "blue", "c": "cyan"} {
		c := m.NewCharge(owner)
		charges[name] = &c
	}
	for i, step := range []struct {
		of   string
		n    int64 // 0: ReleaseBytes
		ok   bool
		held int64
	}{
		{"a", 51, false, 0},
		{"a", 50, true, 50},
		{"a", 1, false, 50},
		{"a2", 1, false, 50},
		{"b", 40, true, 90},
		{"c", 11, false, 90},
		{"c", 10, true, 100},
		{"c", 1, false, 100},
		{"b", 0, true, 60},
		{"b", 0, true, 60},
		{"c", 40, true, 100},
		{"a", 0, true, 50},
		{"a2", 50, true, 100},
		{"a2", 0, true, 50},
		{"c", 0, true, 0},
	} {
		c, ok := charges[step.of], true
		if step.n == 0 {
			c.ReleaseBytes()
		} else {
			ok = c.TakeBytes(step.n)
		}
		if ok != step.ok || m.HeldBytes() != step.held {
			t.Fatalf("step %d, %+v: %v, %d bytes are held", i, step, ok, m.HeldBytes())
		}
	}
	if len(m.byTenant) != 0 {
		t.Errorf("%d tenants are remembered that hold nothing", len(m.byTenant))
	}
}

// TestBodiesAreRefusedWhenBodyMemoryIsFull: a body that does not fit is refused and counted, and holds no
// memory, whether its length is declared or not. One of declared length is not read.
func TestBodiesAreRefusedWhenBodyMemoryIsFull(t *testing.T) {
	for _, declared := range []bool{true, false} {
		for _, c := range []struct {
			size  int
			fits  bool
			reads bool
		}{{40, true, true}, {50, true, true}, {51, false, !declared}, {90, false, !declared}} {
			m := NewBodyMemory(100)
			charge := m.NewCharge("acme")
			in := strings.NewReader(strings.Repeat("x", c.size))
			r := httptest.NewRequest("POST", "/v1/chat/completions", io.MultiReader(in))
			if r.ContentLength = -1; declared {
				r.ContentLength = int64(c.size)
			}
			body, e := BodyLimits{MaxBytes: 1000, Charge: &charge}.ReadBody(httptest.NewRecorder(), r)
			if fits := e == nil && len(body) == c.size && m.HeldBytes() == int64(c.size) && m.RefusedCount() == 0; fits != c.fits {
				t.Errorf("declared %v, %d bytes: %v, %d are held, %d are refused", declared, c.size, e, m.HeldBytes(), m.RefusedCount())
			}
			if !c.fits && (e == nil || e.Status != 503 || e.Code != openai.BodyMemoryFull(0).Code || m.HeldBytes() != 0 || m.RefusedCount() != 1) {
				t.Errorf("declared %v, %d bytes: %v, %d are held, %d are refused", declared, c.size, e, m.HeldBytes(), m.RefusedCount())
			}
			if reads := in.Len() < c.size; reads != c.reads {
				t.Errorf("declared %v, %d bytes: the body is read: %v", declared, c.size, reads)
			}
		}
	}
}
