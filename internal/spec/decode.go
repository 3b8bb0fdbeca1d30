package spec

import (
	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Problem is one mistake in a spec, by the path of the value that holds it.
type Problem = strict.Problem

// Error is every mistake of one text with its place, in print and as JSON.
type Error = strict.Error

// Decode reads a spec's YAML: strictly, defaults applied, validated, ready for lookups. Name is how messages call the
// text. An error is always an *Error that holds every mistake, by line.
func Decode(name string, text []byte) (*Spec, error) { return decode(name, text, false) }

// DecodeAlone reads the spec of a zone that stands alone: there is no DNS, no region and no gateway to declare, and
// models need to be declared only where something is said of them. What is written must be right all the same.
func DecodeAlone(name string, text []byte) (*Spec, error) { return decode(name, text, true) }

// TenantAlone is who everybody is in a zone that stands alone. A tenant of that name in its spec says what they may do.
const TenantAlone = "default"

func decode(name string, text []byte, alone bool) (*Spec, error) {
	doc, err := strict.Parse(name, text)
	if err != nil {
		return nil, err
	}
	s := &Spec{}
	doc.Decode(s)
	if s.Zone.Contact == "" && s.Zone.Name != "" {
		s.Zone.Contact = "hostmaster." + s.Zone.Name
	}
	doc.Report(s.judge(alone))
	if err := doc.Err(); err != nil {
		return nil, err
	}
	s.index = newIndex(s)
	return s, nil
}

// Encode writes a spec as canonical YAML: field order fixed, zero values left out. Decode(Encode(s)) equals a decoded
// s; on a Spec built in Go it is what fills the defaults.
func Encode(s *Spec) []byte { return strict.Encode(s) }
