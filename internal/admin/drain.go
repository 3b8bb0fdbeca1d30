package admin

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Drain is one drain in force.
type Drain struct {
	Path   string    `json:"path"`              // region, region/zone or region/zone/worker
	Until  time.Time `json:"until,omitzero"`    // zero: until undrained
	Reason string    `json:"reason,omitzero"`   // given by the operator
	Actor  string    `json:"actor,omitzero"`    // the caller
	At     time.Time `json:"at,omitzero"`       // when the leader accepted it
	OverMS int64     `json:"over_ms,omitempty"` // new traffic decreases linearly to zero over this time from At on; 0: at once
	Drill  string    `json:"drill,omitempty"`   // the drill that the drain belongs to
}

// RampDuration returns OverMS as a duration.
func (d *Drain) RampDuration() time.Duration { return time.Duration(d.OverMS) * time.Millisecond }

// TrafficShare returns the share of new traffic that remains at now, 0 once the drain is complete.
func (d *Drain) TrafficShare(now time.Time) float64 {
	return spec.DrainShare(d.At, d.RampDuration(), now)
}

// DrainRequest drains a region, zone or worker.
type DrainRequest struct {
	Path   string `json:"path"`
	ForMS  int64  `json:"for_ms,omitempty"`  // 0: until undrained
	OverMS int64  `json:"over_ms,omitempty"` // new traffic decreases linearly to zero over this time; 0: at once
	Reason string `json:"reason,omitempty"`

	DryRun  bool `json:"dry_run,omitempty"` // compute the impact and change nothing
	Force   bool `json:"force,omitempty"`   // drain even if less remains than the spec requires
	Replace bool `json:"replace,omitempty"` // replace a drain of the same path

	// Drill names the drill that the drain belongs to. Only one drill drains at a time, and its drains end by themselves.
	Drill string `json:"drill,omitempty"`
	// OverrideSafety drains against the safety rules of the spec. It needs a reason.
	OverrideSafety bool `json:"override_safety,omitempty"`
}

// checkTimes refuses a drain with invalid durations.
func (r *DrainRequest) checkTimes() *Error {
	const undrained = "omit the time to drain until undrained"
	switch {
	case r.ForMS < 0 || r.OverMS < 0:
		return BadRequestError("the duration of a drain is negative", undrained)
	case r.ForMS > maxDurationMS || r.OverMS > maxDurationMS:
		return BadRequestError(fmt.Sprintf("a drain of %d ms is too long: the longest is 366 days", max(r.ForMS, r.OverMS)), undrained)
	case r.ForMS > 0 && r.OverMS >= r.ForMS:
		return BadRequestError(fmt.Sprintf("the drain ends after %s, before its traffic has decreased to zero over %s", time.Duration(r.ForMS)*time.Millisecond, time.Duration(r.OverMS)*time.Millisecond),
			"both times count from now: make over shorter, or "+undrained)
	}
	return nil
}

// NewDrain returns the drain that the request starts at now.
func (r *DrainRequest) NewDrain(actor string, now time.Time) Drain {
	d := Drain{Path: r.Path, Reason: r.Reason, Actor: actor, At: now, OverMS: r.OverMS, Drill: r.Drill}
	if r.ForMS > 0 {
		d.Until = now.Add(time.Duration(r.ForMS) * time.Millisecond)
	}
	return d
}

// CheckNotDrained refuses a drain of a path that is drained already, unless the request replaces it.
func CheckNotDrained(drains []Drain, r DrainRequest, now time.Time) error {
	if r.Replace {
		return nil
	}
	for _, d := range drains {
		if d.Path != r.Path || !d.Until.IsZero() && !now.Before(d.Until) {
			continue
		}
		text := r.Path + " is drained already, until it is undrained"
		if !d.Until.IsZero() {
			text = r.Path + " is drained already, until " + d.Until.UTC().Format(time.RFC3339)
		}
		if d.Actor != "" {
			text += ", by " + d.Actor
		}
		if d.Reason != "" {
			text += ": " + d.Reason
		}
		return ConflictError(text, "--replace replaces it by the new drain")
	}
	return nil
}

// DrainAnswer lists the drains in force after the call.
type DrainAnswer struct {
	Drains []Drain `json:"drains"`
	Note   string  `json:"note,omitempty"` // a warning, such as that all regions are drained
	// Impact is the remaining capacity; nil in answers to other calls.
	Impact *DrainImpact `json:"impact,omitempty"`
}

// DrainImpact is the serving capacity before and after a drain.
type DrainImpact struct {
	Regions     int          `json:"regions"`
	RegionsLeft int          `json:"regions_left"`
	Zones       int          `json:"zones,omitempty"` // of the region, if a zone or worker is drained
	ZonesLeft   int          `json:"zones_left,omitempty"`
	Models      []DrainModel `json:"models"`
	// Below describes the minimums of the spec that the drain violates. It is then refused unless forced.
	Below []string `json:"below,omitempty"`
}

// DrainModel is the capacity for one model over all regions.
type DrainModel struct {
	Name        string  `json:"name"`
	Workers     int64   `json:"workers"` // ready
	WorkersLeft int64   `json:"workers_left"`
	Rate        float64 `json:"prefill_tokens_per_second"`
	RateLeft    float64 `json:"prefill_tokens_per_second_left"`
	Demand      float64 `json:"demand_tokens_per_second"`
	// WaitSeconds and WaitLeftSeconds are the mean queue waits predicted from demand and capacity; -1: demand exceeds it.
	WaitSeconds     float64 `json:"wait_seconds"`
	WaitLeftSeconds float64 `json:"wait_left_seconds"`
}
