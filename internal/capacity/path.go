package capacity

import (
	"cmp"
	"strings"
)

// Path identifies a subtree: region, region/zone, or region/zone/instance. Empty parts are omitted.
type Path struct {
	Region, Zone, Instance string
}

// String joins the parts that are set with slashes.
func (p Path) String() string {
	s := p.Region
	if p.Zone != "" {
		s += "/" + p.Zone
	}
	if p.Instance != "" {
		s += "/" + p.Instance
	}
	return s
}

// Compare orders paths by region, zone, then instance.
func (p Path) Compare(q Path) int {
	if c := strings.Compare(p.Region, q.Region); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(p.Zone, q.Zone), strings.Compare(p.Instance, q.Instance))
}

// Contains reports whether q is in the subtree p. Every path contains itself; the zero path contains all.
func (p Path) Contains(q Path) bool {
	return (p.Region == "" || p.Region == q.Region) && (p.Zone == "" || p.Zone == q.Zone) &&
		(p.Instance == "" || p.Instance == q.Instance)
}

// commonPath returns the longest path that contains both.
func commonPath(p, q Path) Path {
	if p.Region != q.Region {
		return Path{}
	}
	if p.Zone != q.Zone {
		return Path{Region: p.Region}
	}
	if p.Instance != q.Instance {
		return Path{Region: p.Region, Zone: p.Zone}
	}
	return p
}
