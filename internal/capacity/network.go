package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

// ClientNetwork is a client network with a large part of the demand of its cell for a service (a heavy hitter), so that
// steering must treat it apart from the cell. Of the clients only the network is reported, and only for the heaviest
// networks.
type ClientNetwork struct {
	Service, Cell string
	// Number identifies the network; see NetworkNumber.
	Number uint64
	// TokensPerSec is offered work in prefill-equivalent tokens/s over all models, never above the actual demand.
	TokensPerSec int64

	unknown string // see Summary
}

// Prefix lengths of networks: clients of one network get the same answer.
const (
	NetworkBitsIPv4 = 24
	NetworkBitsIPv6 = 48
)

// NetworkNumber returns the network of a client as a number: the upper 24 bits of an IPv4 address, or 2^48 plus the
// upper 48 bits of an IPv6 address.
func NetworkNumber(a netip.Addr) uint64 {
	a = a.Unmap()
	if a.Is4() {
		b := a.As4()
		return uint64(b[0])<<16 | uint64(b[1])<<8 | uint64(b[2])
	}
	b, v := a.As16(), uint64(1)
	for _, x := range b[:NetworkBitsIPv6/8] {
		v = v<<8 | uint64(x)
	}
	return v
}

// NetworkPrefix is the inverse of NetworkNumber. It returns false for a number that is not a network.
func NetworkPrefix(n uint64) (netip.Prefix, bool) {
	switch {
	case n < 1<<NetworkBitsIPv4:
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(n >> 16), byte(n >> 8), byte(n)}), NetworkBitsIPv4), true
	case n>>NetworkBitsIPv6 == 1:
		var b [16]byte
		for i := range NetworkBitsIPv6 / 8 {
			b[i] = byte(n >> (NetworkBitsIPv6 - 8 - 8*i))
		}
		return netip.PrefixFrom(netip.AddrFrom16(b), NetworkBitsIPv6), true
	}
	return netip.Prefix{}, false
}

// Compare orders networks as in a Summary: by service, cell, then number.
func (n ClientNetwork) Compare(o ClientNetwork) int {
	if n.Service != o.Service {
		return strings.Compare(n.Service, o.Service)
	}
	if n.Cell != o.Cell {
		return strings.Compare(n.Cell, o.Cell)
	}
	return cmp.Compare(n.Number, o.Number)
}

func compareNetwork(a, b ClientNetwork) int { return a.Compare(b) }

func mergeNetwork(a, b ClientNetwork) ClientNetwork {
	a.TokensPerSec, a.unknown = addAmounts(a.TokensPerSec, b.TokensPerSec), ""
	return a
}

// normalizeFields limits the amount to its range. It returns false for an entry that cannot be corrected.
func (n *ClientNetwork) normalizeFields() bool {
	n.TokensPerSec = clampToRange(n.TokensPerSec)
	_, ok := NetworkPrefix(n.Number)
	return ok && cmp.Or(checkName("", n.Service, true), checkName("", n.Cell, true)) == nil
}

func checkNetworks(ns []ClientNetwork) error {
	if len(ns) > MaxNetworks {
		return fmt.Errorf("%d networks: over the limit of %d", len(ns), MaxNetworks)
	}
	for i := range ns {
		n := &ns[i]
		if i > 0 && compareNetwork(ns[i-1], *n) >= 0 {
			return errors.New("networks are not in ascending order")
		}
		if _, ok := NetworkPrefix(n.Number); !ok {
			return fmt.Errorf("%#x is no network", n.Number)
		}
		if i > 0 && ns[i-1].Service == n.Service && ns[i-1].Cell == n.Cell {
			if err := checkAmount(n.TokensPerSec); err != nil {
				return err
			}
			continue
		}
		if err := cmp.Or(checkName("service", n.Service, true), checkName("cell", n.Cell, true), checkAmount(n.TokensPerSec)); err != nil {
			return err
		}
	}
	return nil
}

// diffNetworks returns the entries of next that base does not contain, and those of base whose key is not in next.
func diffNetworks(base, next []ClientNetwork) (changed, removed []ClientNetwork) {
	for i := range next {
		if at, ok := slices.BinarySearchFunc(base, next[i], compareNetwork); !ok || base[at] != next[i] {
			changed = append(changed, next[i])
		}
	}
	for i := range base {
		if _, ok := slices.BinarySearchFunc(next, base[i], compareNetwork); !ok {
			removed = append(removed, base[i])
		}
	}
	return changed, removed
}

func (d *SummaryDelta) remainingNetworks(held []ClientNetwork) []ClientNetwork {
	return dropMatching(held, func(n *ClientNetwork) bool {
		_, gone := slices.BinarySearchFunc(d.RemovedNetworks, *n, compareNetwork)
		return gone
	})
}

func networksToPB(ns []ClientNetwork) []*capacitypb.Network {
	var out []*capacitypb.Network
	for i := range ns {
		n := &ns[i]
		p := &capacitypb.Network{Service: n.Service, Cell: n.Cell, Number: n.Number, TokensPerSec: uint64(n.TokensPerSec)}
		setUnknown(p, n.unknown)
		out = append(out, p)
	}
	return out
}

func networksFromPB(ps []*capacitypb.Network) []ClientNetwork {
	var out []ClientNetwork
	for _, p := range ps {
		out = append(out, ClientNetwork{
			Service: p.Service, Cell: p.Cell, Number: p.Number, TokensPerSec: toAmount(p.TokensPerSec), unknown: getUnknown(p),
		})
	}
	return out
}
