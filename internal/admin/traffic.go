package admin

import (
	"maps"
	"slices"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// TrafficCounts counts what a gateway or a local instance did since it started. A reader takes differences of two answers; a
// count that falls is that of a restarted process.
type TrafficCounts struct {
	// TTFT is the time from arrival to the first byte of the response, at a gateway.
	TTFT []LatencyCounts `json:"ttft,omitempty"`
	// QueueWait is the time from arrival to being sent to a worker, and FirstByte the time from then to the first byte of the
	// answer, at a local instance.
	QueueWait []LatencyCounts `json:"queue_wait,omitempty"`
	FirstByte []LatencyCounts `json:"first_byte,omitempty"`
	// Spills are the requests that a gateway spilled, by region.
	Spills []SpillCount `json:"spills,omitempty"`
}

// LatencyCounts counts durations of one model.
type LatencyCounts struct {
	Model  string    `json:"model"`
	Bounds []float64 `json:"bounds_seconds"` // upper bounds of the counts
	Counts []uint64  `json:"counts"`         // the last one is above all bounds
	Sum    float64   `json:"sum_seconds"`
}

// SpillCount counts the requests that were spilled to one region.
type SpillCount struct {
	To    string `json:"to"`
	Count uint64 `json:"count"`
}

// ToLatencyCounts converts totals by model, in the order of the names.
func ToLatencyCounts(totals map[string]telemetry.HistogramTotals) []LatencyCounts {
	out := make([]LatencyCounts, 0, len(totals))
	for _, model := range slices.Sorted(maps.Keys(totals)) {
		t := totals[model]
		out = append(out, LatencyCounts{Model: model, Bounds: t.Bounds, Counts: t.Counts, Sum: t.Sum})
	}
	return out
}

// ToSpillCounts converts counts by region, in the order of the names.
func ToSpillCounts(counts map[string]float64) []SpillCount {
	out := make([]SpillCount, 0, len(counts))
	for _, to := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, SpillCount{To: to, Count: uint64(counts[to])})
	}
	return out
}
