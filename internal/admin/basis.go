package admin

import (
	"fmt"
	"io"
	"time"
)

// Basis is one thing that a node goes by: what it is, where it has it from, and how old that is.
type Basis struct {
	What string `json:"what"` // "spec", "plan", "directive" or "uplink"
	From string `json:"from"` // "raft", "parent", "disk", "config", "file", "defaults" or "none"
	// AgeMS is since it was heard last from there, or written there; -1: no age, or none known.
	AgeMS int64 `json:"age_ms"`
	// Detail is for people: versions, and what follows from it.
	Detail string `json:"detail,omitempty"`
}

// BasisOf is a Basis of what came, or was written, at a time; the zero time has no age.
func BasisOf(what, from string, at time.Time, detail string) Basis {
	b := Basis{What: what, From: from, AgeMS: -1, Detail: detail}
	if !at.IsZero() {
		b.AgeMS = max(time.Since(at).Milliseconds(), 0)
	}
	return b
}

// String is a line such as "directive from disk, 3m0s old: spec v3, plan 7".
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

// verbose writes what a node runs from after its readiness.
func verbose(w io.Writer, basis func() []Basis) {
	if basis == nil {
		return
	}
	for _, b := range basis() {
		fmt.Fprintln(w, b)
	}
}
