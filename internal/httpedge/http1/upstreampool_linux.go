package http1

import "time"

const (
	// maxIdleUpstreams and maxIdlePerUpstream bound the idle connections to all upstreams and to one, as
	// forward.NewTransport does. upstreamIdleTimeout is how long they are kept.
	maxIdleUpstreams    = 4096
	maxIdlePerUpstream  = 512
	upstreamIdleTimeout = 90 * time.Second
)

// upstreamPool holds the idle connections to upstreams.
type upstreamPool struct {
	idle      map[string][]*loopUpstream // by target, the most recently used at the end
	idleCount int
}

// takeIdle returns an idle connection, or nil.
func (p *upstreamPool) takeIdle(target string) *loopUpstream {
	list := p.idle[target]
	if len(list) == 0 {
		return nil
	}
	u := list[len(list)-1]
	list[len(list)-1] = nil
	p.idle[target] = list[:len(list)-1]
	p.idleCount--
	return u
}

// putIdle keeps a connection for the next request.
func (p *upstreamPool) putIdle(u *loopUpstream, now time.Time) {
	if len(p.idle[u.target]) >= maxIdlePerUpstream || p.idleCount >= maxIdleUpstreams {
		u.closeUpstream()
		return
	}
	u.idleSince, u.reused = now, true
	p.idle[u.target] = append(p.idle[u.target], u)
	p.idleCount++
}

// dropIdle removes a connection that has ended while idle.
func (p *upstreamPool) dropIdle(u *loopUpstream) {
	list := p.idle[u.target]
	for i := range list {
		if list[i] == u {
			p.idle[u.target] = append(list[:i], list[i+1:]...)
			p.idleCount--
			break
		}
	}
	if len(p.idle[u.target]) == 0 {
		delete(p.idle, u.target)
	}
	u.closeUpstream()
}

// closeExpired closes what was idle for too long.
func (p *upstreamPool) closeExpired(now time.Time) {
	for target, list := range p.idle {
		old := 0
		for old < len(list) && now.Sub(list[old].idleSince) > upstreamIdleTimeout {
			list[old].closeUpstream()
			old++
		}
		if p.idleCount -= old; old == len(list) {
			delete(p.idle, target)
		} else if old > 0 {
			p.idle[target] = append([]*loopUpstream(nil), list[old:]...)
		}
	}
}

func (p *upstreamPool) closeAll() {
	for _, list := range p.idle {
		for _, u := range list {
			u.closeUpstream()
		}
	}
	clear(p.idle)
	p.idleCount = 0
}
