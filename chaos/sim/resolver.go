package sim

import "net/netip"

// cachedAnswer is a resolver's cached answer.
type cachedAnswer struct {
	region    int32
	gateways  []*gatewayInstance // its gateways, in the order of the answer
	expiresAt int64
}

// resolveGateway is the gateway that a client uses: one of its own region, or of its resolver's answer. fresh
// bypasses the resolver's cache.
func (p *globalTier) resolveGateway(x *simulatedRequest, fresh bool) *gatewayInstance {
	q := x.req
	own := p.topology.clientRegion(q)
	turn := splitMix64(q.Session) + uint64(x.clientTries)
	door := func(list []*gatewayInstance) *gatewayInstance { return list[turn%uint64(len(list))] }
	if !p.hasNodes() || !p.scenario.Steering.Enabled {
		return door(own.gateways)
	}
	n := int32(splitMix64(q.Session) % uint64(p.scenario.Steering.resolverCount()))
	kept := p.dnsCaches[own.index][n]
	if kept != nil && p.loop.now < kept.expiresAt && !fresh {
		return door(kept.gateways)
	}
	asked := p.nearestNode(own)
	if asked == nil { // no answer: the cached one stays in use
		if kept != nil {
			return door(kept.gateways)
		}
		return door(own.gateways)
	}
	p.result.Queries++
	to, ttl := asked.core.pickRegion(0, own.location, resolverAddr(own.index, n))
	at := p.regionIndex(to)
	if at < 0 {
		return door(own.gateways)
	}
	if kept == nil {
		kept = &cachedAnswer{}
		p.dnsCaches[own.index][n] = kept
	}
	kept.region, kept.expiresAt = at, p.loop.now+int64(ttl)
	kept.gateways = kept.gateways[:0]
	for _, a := range asked.core.gatewayAddrs(to) {
		if g := p.topology.gatewayByAddr[a.Unmap()]; g != nil {
			kept.gateways = append(kept.gateways, g)
		}
	}
	if len(kept.gateways) == 0 {
		kept.gateways = append(kept.gateways, p.topology.regions[at].gateways...)
	}
	return door(kept.gateways)
}

// regionIndex is the fleet's index of a region of the spec.
func (p *globalTier) regionIndex(inSpec int) int32 {
	if inSpec < 0 {
		return -1
	}
	name := p.spec.Regions[inSpec].Name
	for i, reg := range p.topology.regions {
		if reg.name == name {
			return int32(i)
		}
	}
	return -1
}

// resolverAddr is the address of a resolver of a region; each has its own network.
func resolverAddr(region, n int32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + region%200), byte(n >> 8), byte(n), 7})
}

// nearestNode is the node that a region's resolvers query; nil when they reach none.
func (p *globalTier) nearestNode(reg *regionState) (best *globalNode) {
	for _, n := range p.nodes {
		if p.canReach(reg, n) && (best == nil || p.network.regionRTT(reg, n.region) < p.network.regionRTT(reg, best.region)) {
			best = n
		}
	}
	return best
}
