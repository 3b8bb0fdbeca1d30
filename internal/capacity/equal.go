package capacity

import "slices"

// Equal reports whether two Summaries say the same. An empty list and an absent one are the same.
func (s Summary) Equal(t Summary) bool {
	return s.Path == t.Path && s.Boot == t.Boot && s.Seq == t.Seq && s.Endpoint == t.Endpoint && s.Draining == t.Draining &&
		s.unknown == t.unknown && slices.Equal(s.Acks, t.Acks) && slices.Equal(s.Demand, t.Demand) &&
		slices.Equal(s.RTTs, t.RTTs) && slices.Equal(s.Networks, t.Networks) && slices.Equal(s.Outcomes, t.Outcomes) &&
		slices.Equal(s.Uses, t.Uses) && s.Holding == t.Holding &&
		slices.EqualFunc(s.Models, t.Models, Model.Equal)
}

// Equal reports whether two Models say the same.
func (m Model) Equal(n Model) bool {
	return m.equalButPrefixes(&n) && slices.Equal(m.Prefixes, n.Prefixes)
}

func (m *Model) equalButPrefixes(n *Model) bool {
	x, y := m.amounts(), n.amounts()
	for i := range x {
		if *x[i] != *y[i] {
			return false
		}
	}
	return m.WarmMillis == n.WarmMillis && m.ColdMillis == n.ColdMillis && m.sameKind(n)
}

// sameKind says that nothing but amounts and prefixes may differ.
func (m *Model) sameKind(n *Model) bool {
	return m.Name == n.Name && m.unknown == n.unknown && slices.Equal(m.Hardware, n.Hardware) && slices.EqualFunc(m.Pools, n.Pools, Model.Equal)
}
