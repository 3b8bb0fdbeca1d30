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
	pick := func(list []*gatewayInstance) *gatewayInstance { return list[turn%uint64(len(list))] }
	if !p.hasNodes() || !p.scenario.Steering.Enabled {
		return pick(own.gateways)
	}
	n := int32(splitMix64(q.Session) % uint64(p.scenario.Steering.resolverCount()))
	cached := p.dnsCaches[own.index][n]
	if cached != nil && p.loop.now < cached.expiresAt && !fresh {
		return pick(cached.gateways)
	}
	node := p.nearestNode(own)
	if node == nil { // no answer: the cached one stays in use
		if cached != nil {
			return pick(cached.gateways)
		}
		return pick(own.gateways)
	}
	p.result.Queries++
	to, ttl := node.core.pickRegion(0, own.location, resolverAddr(own.index, n))
	at := p.regionIndex(to)
	if at < 0 {
		return pick(own.gateways)
	}
	if cached == nil {
		cached = &cachedAnswer{}
		p.dnsCaches[own.index][n] = cached
	}
	cached.region, cached.expiresAt = at, p.loop.now+int64(ttl)
	cached.gateways = cached.gateways[:0]
	for _, a := range node.core.gatewayAddrs(to) {
		if g := p.topology.gatewayByAddr[a.Unmap()]; g != nil {
			cached.gateways = append(cached.gateways, g)
		}
	}
	if len(cached.gateways) == 0 {
		cached.gateways = append(cached.gateways, p.topology.regions[at].gateways...)
	}
	return pick(cached.gateways)
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
