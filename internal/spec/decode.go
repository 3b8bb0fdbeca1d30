package spec

import (
	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Problem is one mistake in a spec, with the path of its value.
type Problem = strict.Problem

// Error holds all mistakes of one text with their positions, as text and as JSON.
type Error = strict.Error

// Decode parses a spec from YAML: strictly, with defaults applied, validated, ready for lookups. name
// identifies the text in messages. An error is always an *Error with every mistake by line.
func Decode(name string, text []byte) (*Spec, error) { return decodeSpec(name, text, false) }

// DecodeStandalone parses the spec of a standalone zone: DNS, regions and gateways need not be declared, and
// models only if they have settings. Everything present must be valid.
func DecodeStandalone(name string, text []byte) (*Spec, error) { return decodeSpec(name, text, true) }

// DefaultTenant is the tenant of all clients in a standalone zone. A tenant of that name in its spec sets its
// rights.
const DefaultTenant = "default"

func decodeSpec(name string, text []byte, alone bool) (*Spec, error) {
	doc, err := strict.Parse(name, text)
	if err != nil {
		return nil, err
	}
	s := &Spec{}
	doc.Decode(s)
	if s.Zone.Contact == "" && s.Zone.Name != "" {
		s.Zone.Contact = "hostmaster." + s.Zone.Name
	}
	doc.ReportProblems(s.findProblems(alone))
	if err := doc.Err(); err != nil {
		return nil, err
	}
	s.index = newSpecIndex(s)
	return s, nil
}

// Encode writes a spec as canonical YAML: fixed field order, zero values omitted. Decode(Encode(s)) equals a
// decoded s; for a Spec built in Go it fills in the defaults.
func Encode(s *Spec) []byte { return strict.Encode(s) }
