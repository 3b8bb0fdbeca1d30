package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits that EncodeSummary and DecodeSummary enforce, MergeSummaries keeps and FitToLimits establishes.
const (
	MaxModels       = 256
	MaxHardware     = 32
	MaxPrefixes     = 32
	MaxAcks         = 64
	MaxDemand       = 512
	MaxRTTs         = 512
	MaxOutcomes     = 256
	MaxNetworks     = 512
	MaxTenantUsages = 256
	// MaxName is the maximum length of a name, in bytes: that of a DNS name.
	MaxName = 253
	// MaxAmount is the maximum amount. It is exact in a float64 and in JSON, and sums of several do not overflow.
	MaxAmount = 1 << 53
	// MaxEncoded is the maximum size of an encoded Summary, in bytes.
	MaxEncoded = 64 << 10
)

// ErrTooLarge means that a summary encodes to more than MaxEncoded bytes. FitToLimits returns one that does not.
var ErrTooLarge = errors.New("summary is larger than the limit")

// checkLimits returns an error for what no correct instance sends: amounts that are negative or too great, unsorted
// lists, duplicates, too long names.
func (s *Summary) checkLimits() error {
	if err := s.Path.checkPath(); err != nil {
		return err
	}
	if err := checkName("endpoint", s.Endpoint, true); err != nil {
		return err
	}
	if len(s.Models) > MaxModels || len(s.Acks) > MaxAcks {
		return fmt.Errorf("%d models, %d acks: over the limit of %d, %d", len(s.Models), len(s.Acks), MaxModels, MaxAcks)
	}
	for i := range s.Models {
		if i > 0 && s.Models[i-1].Name >= s.Models[i].Name {
			return errors.New("models are not in ascending order of name")
		}
		if err := s.Models[i].checkModel(); err != nil {
			return fmt.Errorf("model %d: %w", i, err)
		}
	}
	for i := range s.Acks {
		if i > 0 && s.Acks[i-1].Parent >= s.Acks[i].Parent {
			return errors.New("acks are not in ascending order of parent")
		}
		if err := checkName("ack parent", s.Acks[i].Parent, false); err != nil {
			return err
		}
	}
	if err := checkDemand(s.Demand); err != nil {
		return err
	}
	return cmp.Or(checkRTTs(s.RTTs), checkNetworks(s.Networks), checkOutcomes(s.Outcomes), checkUsages(s.TenantUsages), s.HeldLeases.checkAge())
}

func (p Path) checkPath() error {
	for _, part := range [...]string{p.Region, p.Zone, p.Instance} {
		if err := checkName("path", part, true); err != nil {
			return err
		}
		if strings.ContainsRune(part, '/') {
			return errors.New("path part contains a slash")
		}
	}
	return nil
}

func (m *ModelCapacity) checkModel() error {
	if err := checkName("model", m.Name, false); err != nil {
		return err
	}
	if len(m.Hardware) > MaxHardware || len(m.Prefixes) > MaxPrefixes {
		return fmt.Errorf("%d hardware types, %d prefixes: over the limit of %d, %d", len(m.Hardware), len(m.Prefixes), MaxHardware, MaxPrefixes)
	}
	for _, n := range m.amountFields() {
		if err := checkAmount(*n); err != nil {
			return err
		}
	}
	if err := cmp.Or(checkAmount(m.WarmMillis), checkAmount(m.ColdMillis)); err != nil {
		return err
	}
	if err := m.checkPartAmounts(); err != nil {
		return err
	}
	for i := range m.Hardware {
		h := &m.Hardware[i]
		if i > 0 && m.Hardware[i-1].Name >= h.Name {
			return errors.New("hardware is not in ascending order of name")
		}
		if err := cmp.Or(checkName("hardware", h.Name, false), checkAmount(h.Ready), checkAmount(h.PrefillRate), checkAmount(h.DecodeRate)); err != nil {
			return err
		}
	}
	return cmp.Or(m.checkPrefixes(), checkPools(m.Pools))
}

func (m *ModelCapacity) checkPartAmounts() error {
	if m.Ready > m.Total || m.KVFree > m.KVTotal || m.SlotsFree > m.SlotsTotal {
		return errors.New("a part exceeds its whole (ready, free KV or free slots)")
	}
	return nil
}

func (m *ModelCapacity) checkPrefixes() error {
	for i, p := range m.Prefixes {
		if err := checkAmount(p.Tokens); err != nil {
			return err
		}
		if i > 0 && comparePrefix(m.Prefixes[i-1], p) >= 0 {
			return errors.New("prefixes are not in order")
		}
		for _, q := range m.Prefixes[:i] {
			if q.Hash == p.Hash {
				return errors.New("prefix given twice")
			}
		}
	}
	return nil
}

func checkDemand(ds []CellDemand) error {
	if len(ds) > MaxDemand {
		return fmt.Errorf("%d demands: over the limit of %d", len(ds), MaxDemand)
	}
	for i := range ds {
		d := &ds[i]
		if i > 0 && compareDemand(ds[i-1], *d) >= 0 {
			return errors.New("demand is not in ascending order")
		}
		if err := cmp.Or(checkName("service", d.Service, true), checkName("model", d.Model, true), checkName("cell", d.Cell, true),
			checkAmount(d.TokensPerSec), checkAmount(d.RequestsPerSecMilli)); err != nil {
			return err
		}
	}
	return nil
}

func checkName(what, s string, mayBeEmpty bool) error {
	if s != "" && isPlainName(s) {
		return nil
	}
	switch {
	case s == "" && !mayBeEmpty:
		return fmt.Errorf("%s has no name", what)
	case len(s) > MaxName:
		return fmt.Errorf("%s name of %d bytes: at most %d", what, len(s), MaxName)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s name is not UTF-8", what)
	case strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%s name contains a control character", what)
	}
	return nil
}

// isPlainName reports whether a name is not too long and of printable ASCII, as nearly all names are.
func isPlainName(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) <= MaxName
}

func checkAmount(n int64) error {
	if n < 0 || n > MaxAmount {
		return fmt.Errorf("amount %d is outside 0..2^53", n)
	}
	return nil
}

// amountFields returns the fields that are summed, and MaxContext, in one fixed order.
func (m *ModelCapacity) amountFields() [19]*int64 {
	return [...]*int64{
		&m.Ready, &m.Total, &m.KVTotal, &m.KVFree, &m.SlotsTotal, &m.SlotsFree, &m.Running, &m.Queued, &m.Backlog,
		&m.WorkAhead[0], &m.WorkAhead[1], &m.WorkAhead[2], &m.Headroom[0], &m.Headroom[1], &m.Headroom[2],
		&m.Warm, &m.Cold, &m.CostMicros, &m.MaxContext,
	}
}
