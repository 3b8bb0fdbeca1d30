package admin

import (
	"fmt"
	"io"
	"time"
)

// Basis is one part of the configuration in force at a node, with its source and age.
type Basis struct {
	What string `json:"what"` // "spec", "plan", "directive" or "uplink"
	From string `json:"from"` // "raft", "parent", "disk", "config", "file", "defaults" or "none"
	// AgeMS is the time since it was received from the source, or written there; -1: unknown or not applicable.
	AgeMS int64 `json:"age_ms"`
	// Detail is text: versions, and the effect.
	Detail string `json:"detail,omitempty"`
}

// NewBasis returns a Basis of something received or written at a time. The zero time means an unknown age.
func NewBasis(what, from string, at time.Time, detail string) Basis {
	b := Basis{What: what, From: from, AgeMS: -1, Detail: detail}
	if !at.IsZero() {
		b.AgeMS = max(time.Since(at).Milliseconds(), 0)
	}
	return b
}

// String returns a line such as "directive from disk, 3m0s old: spec v3, plan 7".
func (b Basis) String() string {
	s := b.What + " from " + b.From
	if b.AgeMS >= 0 {
		s += fmt.Sprintf(", %v old", (time.Duration(b.AgeMS) * time.Millisecond).Round(100*time.Millisecond))
	}
	if b.Detail != "" {
		s += ": " + b.Detail
	}
	return s
}

// writeBasis writes a line for each part of the configuration in force.
func writeBasis(w io.Writer, basis func() []Basis) {
	if basis == nil {
		return
	}
	for _, b := range basis() {
		fmt.Fprintln(w, b)
	}
}
