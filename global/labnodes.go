package global

import "net/netip"

// Addresses are those of a region's gateways that an answer lists: of those that are well, or of all.
func (l *Lab) Addresses(region int) []netip.Addr { return l.view.regions[region].addrs }
