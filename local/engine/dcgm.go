package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// maxCards bounds the GPUReadings of one exporter.
const maxCards = 128

// GPUReadings is the last reading of a worker's GPUs from an exporter. The zero GPUReadings means that there was
// none.
type GPUReadings struct {
	// ReadAt is when the exporter last answered.
	ReadAt time.Time
	// Cards in order of their name; shared and immutable.
	Cards []GPUCard
	// Ignored counts values that were dropped because they are out of range.
	Ignored int64
}

// GPUCard is one GPU.
type GPUCard struct {
	// Name is its index on its machine, or its UUID if the exporter gives no index.
	Name string
	// XID is the code of the last error that the driver reported, 0 for none. It stays until the driver is reset.
	XID int64
	// RemapFailed reports that the spare rows for broken memory are used up.
	RemapFailed bool
	// Used and Free memory, in bytes. Engines allocate nearly all of it at their start.
	Used, Free int64
	// Busy is the fraction of time that the card computed, 0..1; 0 also when unknown.
	Busy float64
}

// MeanBusy is the mean of Busy over the cards; 0 without cards.
func (g *GPUReadings) MeanBusy() float64 {
	sum := 0.0
	for i := range g.Cards {
		sum += g.Cards[i].Busy
	}
	return sum / max(float64(len(g.Cards)), 1)
}

// Exporter reads NVIDIA's DCGM exporter.
type Exporter struct {
	workerServer
	cardNames []string
}

// NewExporter reads the exporter at address, "http://host:9400/metrics". An exporter covers a whole machine: cards
// selects those of the worker, by index, UUID or device; empty means all.
func NewExporter(address string, cards []string, c *Client) (*Exporter, error) {
	u, err := parseBaseURL(address)
	if err != nil {
		return nil, err
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/metrics"
	}
	return &Exporter{workerServer{metricsURL: u.String(), client: c}, slices.Clone(cards)}, nil
}

// ReadGPUs reads the exporter's page. On an error it returns the last reading unchanged.
func (e *Exporter) ReadGPUs(ctx context.Context, last GPUReadings) (GPUReadings, error) {
	next := last
	err := e.client.getPage(ctx, e.metricsURL, MaxPageBytes, func(b []byte) error {
		g, ok := parseDCGM(b, e.cardNames, last, time.Now())
		if !ok {
			return ErrUnknownPage
		}
		next = g
		return nil
	})
	return next, err
}

// parseDCGM parses the exporter's page. A value without a series stays as in last, except an XID: an exporter that
// has seen none has no series for it.
func parseDCGM(text []byte, only []string, last GPUReadings, now time.Time) (GPUReadings, bool) {
	out := GPUReadings{ReadAt: now, Ignored: last.Ignored}
	heard := false
	for l := range scanSeries(text, "DCGM_FI_DEV_") {
		labels, v, ok := l.parseSeries()
		field := cardFieldSetter(l.name)
		if field == nil {
			continue
		}
		heard = true
		if len(only) > 0 && !isWorkersCard(labels, only) {
			continue
		}
		if !ok || !(v >= 0 && v <= 1<<32) {
			out.Ignored++
			continue
		}
		if c := out.findOrAddCard(labels, last); c != nil {
			field(c, v)
		}
	}
	slices.SortFunc(out.Cards, func(a, b GPUCard) int { return cmp.Compare(a.Name, b.Name) })
	return out, heard
}

// isWorkersCard reports whether a series belongs to one of the worker's cards.
func isWorkersCard(labels []byte, only []string) bool {
	for n, v := range labelPairs(labels) {
		switch string(n) {
		case "gpu", "UUID", "device":
			if slices.Contains(only, string(v)) {
				return true
			}
		}
	}
	return false
}

// findOrAddCard returns the card that the labels name, adding it if it is new; nil when there are too many.
func (g *GPUReadings) findOrAddCard(labels []byte, last GPUReadings) *GPUCard {
	name := string(labelValue(labels, "gpu"))
	if name == "" {
		name = string(labelValue(labels, "UUID"))
	}
	if len(name) > maxNameBytes {
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
	c := GPUCard{Name: name}
	for _, old := range last.Cards {
		if old.Name == name {
			c = old
			c.XID = 0
		}
	}
	g.Cards = append(g.Cards, c)
	return &g.Cards[len(g.Cards)-1]
}

func cardFieldSetter(name []byte) func(*GPUCard, float64) {
	const mib = 1 << 20
	switch string(name) {
	case "DCGM_FI_DEV_XID_ERRORS":
		// Some exporter versions keep a series for each code. The newest cannot be determined, and the largest is the
		// most severe.
		return func(c *GPUCard, v float64) { c.XID = max(c.XID, int64(v)) }
	case "DCGM_FI_DEV_ROW_REMAP_FAILURE":
		return func(c *GPUCard, v float64) { c.RemapFailed = v > 0 }
	case "DCGM_FI_DEV_FB_USED":
		return func(c *GPUCard, v float64) { c.Used = int64(v * mib) }
	case "DCGM_FI_DEV_FB_FREE":
		return func(c *GPUCard, v float64) { c.Free = int64(v * mib) }
	case "DCGM_FI_DEV_GPU_UTIL":
		return func(c *GPUCard, v float64) { c.Busy = min(v/100, 1) }
	}
	return nil
}
