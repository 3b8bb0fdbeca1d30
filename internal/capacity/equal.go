package capacity

import (
	"slices"
)

// Equal reports whether two summaries are equal. An empty list equals an absent one.
func (s Summary) Equal(t Summary) bool {
	return s.Path == t.Path && s.Boot == t.Boot && s.Seq == t.Seq && s.Endpoint == t.Endpoint && s.Draining == t.Draining &&
		s.unknown == t.unknown && slices.Equal(s.Acks, t.Acks) && slices.Equal(s.Demand, t.Demand) &&
		slices.Equal(s.RTTs, t.RTTs) && slices.Equal(s.Networks, t.Networks) && slices.Equal(s.Outcomes, t.Outcomes) &&
		slices.Equal(s.TenantUsages, t.TenantUsages) && s.HeldLeases == t.HeldLeases &&
		slices.EqualFunc(s.Models, t.Models, ModelCapacity.Equal)
}

// Equal reports whether two models are equal.
func (m ModelCapacity) Equal(n ModelCapacity) bool {
	return m.equalExceptPrefixes(&n) && slices.Equal(m.Prefixes, n.Prefixes)
}

func (m *ModelCapacity) equalExceptPrefixes(n *ModelCapacity) bool {
	x, y := m.amountFields(), n.amountFields()
	for i := range x {
		if *x[i] != *y[i] {
			return false
		}
	}
	return m.WarmMillis == n.WarmMillis && m.ColdMillis == n.ColdMillis && m.equalExceptAmounts(n)
}

// equalExceptAmounts reports whether two models differ at most in amounts and prefixes.
func (m *ModelCapacity) equalExceptAmounts(n *ModelCapacity) bool {
	return m.Name == n.Name && m.unknown == n.unknown && slices.Equal(m.Hardware, n.Hardware) && slices.EqualFunc(m.Pools, n.Pools, ModelCapacity.Equal)
}

// ShareUnchanged replaces the model names and hardware lists of s by those of old where they are equal: they change
// rarely. s must not be shared yet. It saves a parent of a thousand children a third of their memory.
func (s *Summary) ShareUnchanged(old *Summary) {
	if old == nil {
		return
	}
	at := 0
	for i := range s.Models {
		m := &s.Models[i]
		for at < len(old.Models) && old.Models[at].Name < m.Name {
			at++
		}
		if at == len(old.Models) {
			return
		}
		if o := &old.Models[at]; o.Name == m.Name {
			m.Name = o.Name
			if slices.Equal(m.Hardware, o.Hardware) {
				m.Hardware = o.Hardware
			}
			if slices.Equal(m.Prefixes, o.Prefixes) {
				m.Prefixes = o.Prefixes
			}
		}
	}
}
