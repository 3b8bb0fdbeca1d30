package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// maxCards bounds the GPUs of one exporter.
const maxCards = 128

// GPUs is what an exporter of GPU metrics said of a worker's cards. The zero GPUs is "nothing heard".
type GPUs struct {
	// At is when the exporter last answered.
	At time.Time
	// Cards in order of their name; shared and never written again.
	Cards []Card
	// Ignored counts values that were left out because they cannot be.
	Ignored int64
}

// Card is one GPU.
type Card struct {
	// Name is its index on its machine, or its UUID where the exporter does not say.
	Name string
	// XID is the code of the last error that the driver reported, 0 for none. It stays until the driver is reset.
	XID int64
	// RemapFailed says that the card has run out of spare rows for its broken memory.
	RemapFailed bool
	// Used and Free memory, in bytes. Engines take nearly all of it when they start.
	Used, Free int64
	// Busy is the part of the time that the card computed, 0..1; 0 also when the exporter does not say.
	Busy float64
}

// Busy is the mean of what the cards say; 0 when they say nothing.
func (g *GPUs) Busy() float64 {
	sum := 0.0
	for i := range g.Cards {
		sum += g.Cards[i].Busy
	}
	return sum / max(float64(len(g.Cards)), 1)
}

// Exporter reads NVIDIA's DCGM exporter.
type Exporter struct {
	server
	cards []string
}

// NewExporter reads the exporter at address, "http://host:9400/metrics". An exporter speaks for a whole machine: cards
// names those that are the worker's, by index, UUID or device; empty means all.
func NewExporter(address string, cards []string, c *Client) (*Exporter, error) {
	u, err := parseBase(address)
	if err != nil {
		return nil, err
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/metrics"
	}
	return &Exporter{server{metrics: u.String(), client: c}, slices.Clone(cards)}, nil
}

// Read asks the exporter. On an error the last reading comes back as it was.
func (e *Exporter) Read(ctx context.Context, last GPUs) (GPUs, error) {
	next := last
	err := e.client.page(ctx, e.metrics, MaxPage, func(b []byte) error {
		g, ok := parseDCGM(b, e.cards, last, time.Now())
		if !ok {
			return ErrForeign
		}
		next = g
		return nil
	})
	return next, err
}

// parseDCGM reads the exporter's page. What no line says of a card keeps its value from last, but for an XID: an
// exporter that has seen none does not mention it.
func parseDCGM(text []byte, only []string, last GPUs, now time.Time) (GPUs, bool) {
	out := GPUs{At: now, Ignored: last.Ignored}
	heard := false
	for l := range lines(text, "DCGM_FI_DEV_") {
		labels, v, ok := l.read()
		field := cardField(l.name)
		if field == nil {
			continue
		}
		heard = true
		if len(only) > 0 && !mine(labels, only) {
			continue
		}
		if !ok || !(v >= 0 && v <= 1<<32) {
			out.Ignored++
			continue
		}
		if c := out.card(labels, last); c != nil {
			field(c, v)
		}
	}
	slices.SortFunc(out.Cards, func(a, b Card) int { return cmp.Compare(a.Name, b.Name) })
	return out, heard
}

// mine says that a series is of one of the worker's cards.
func mine(labels []byte, only []string) bool {
	for n, v := range pairs(labels) {
		switch string(n) {
		case "gpu", "UUID", "device":
			if slices.Contains(only, string(v)) {
				return true
			}
		}
	}
	return false
}

// card finds or begins the card that the labels name; nil when there are too many.
func (g *GPUs) card(labels []byte, last GPUs) *Card {
	name := string(label(labels, "gpu"))
	if name == "" {
		name = string(label(labels, "UUID"))
	}
	if len(name) > maxName {
		return nil
	}
	for i := range g.Cards {
		if g.Cards[i].Name == name {
			return &g.Cards[i]
		}
	}
	if len(g.Cards) == maxCards {
		return nil
	}
	c := Card{Name: name}
	for _, old := range last.Cards {
		if old.Name == name {
			c = old
			c.XID = 0
		}
	}
	g.Cards = append(g.Cards, c)
	return &g.Cards[len(g.Cards)-1]
}

func cardField(name []byte) func(*Card, float64) {
	const mib = 1 << 20
	switch string(name) {
	case "DCGM_FI_DEV_XID_ERRORS":
		// Exporters of some versions keep a series for each code; the newest cannot be told, the largest is the gravest.
		return func(c *Card, v float64) { c.XID = max(c.XID, int64(v)) }
	case "DCGM_FI_DEV_ROW_REMAP_FAILURE":
		return func(c *Card, v float64) { c.RemapFailed = v > 0 }
	case "DCGM_FI_DEV_FB_USED":
		return func(c *Card, v float64) { c.Used = int64(v * mib) }
	case "DCGM_FI_DEV_FB_FREE":
		return func(c *Card, v float64) { c.Free = int64(v * mib) }
	case "DCGM_FI_DEV_GPU_UTIL":
		return func(c *Card, v float64) { c.Busy = min(v/100, 1) }
	}
	return nil
}
