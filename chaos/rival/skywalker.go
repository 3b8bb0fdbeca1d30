package rival

import "github.com/spillway-lb/spillway/local/pick"

// Replica is what a balancer knows of one replica of its region: from its last probe, and from what it has sent there.
type Replica struct {
	// Pending requests wait in the engine, which means that its batch is full.
	Pending int64
	// Load is how many requests the balancer has there: what "least loaded" goes by.
	Load int64
	// Down leaves it out.
	Down bool
}

// Peer is what a balancer knows of another region's: from its last probe, and from what it has sent there.
type Peer struct {
	// Available replicas of that region have nothing pending.
	Available int
	// Queue is how many requests wait at that region's balancer.
	Queue int64
	// Load is how many requests this balancer has there.
	Load int64
	// Down leaves it out.
	Down bool
}

// Constants of SkyWalker's balancer (EuroSys'26, section 4, and its code).
const (
	// Probe is how often replicas and peers are asked, in milliseconds.
	Probe = 100
	// skyMatch is the part of the prompt that must match for the match to matter.
	skyMatch = 0.5
	// SkyQueue is the peer's queue up to which it is sent more.
	SkyQueue = 10
	// trieBytes is the memory of each of a balancer's two tries.
	trieBytes = 64 << 20
)

// SkyWalker is one region's balancer: it pushes a request to a replica only while that has nothing pending, to another
// region only while none of its own is so and that one has such a replica, and keeps it otherwise, first come, first served.
// It remembers what it sent to each replica, and to each region, and prefers who was sent the longest beginning of the prompt.
type SkyWalker struct {
	tau      int64
	replicas *pick.Index
	peers    *pick.Index
}

// NewSkyWalker returns a balancer that pushes to peers with at most tau requests in their queues. Each replica's cache is
// believed to reach as far back as kv tokens, at so many bytes each.
func NewSkyWalker(replicas, peers int, tau, kv int64, bytesPerToken float64) *SkyWalker {
	s := &SkyWalker{tau: tau, replicas: pick.NewIndex(trieBytes), peers: pick.NewIndex(trieBytes)}
	for i := range replicas {
		s.replicas.Reach(int32(i), kv, bytesPerToken)
	}
	for i := range peers {
		s.peers.Reach(int32(i), kv*int64(max(replicas, 1)), bytesPerToken)
	}
	return s
}

// Place is where a request goes: to a replica of the region, to a peer, or nowhere yet.
type Place struct {
	Replica int // -1 for none
	Peer    int // -1 for none
}

// wait is the place of a request that stays in the balancer's queue.
var wait = Place{Replica: -1, Peer: -1}

// Waits says that the request stays in the balancer's queue.
func (p Place) Waits() bool { return p == wait }

// Choose says where a prompt of these blocks and bytes goes. A request that came from a peer is never pushed on.
func (s *SkyWalker) Choose(blocks []uint64, bytes int64, replicas []Replica, peers []Peer, fromPeer bool) Place {
	at := s.best(s.replicas, blocks, bytes, len(replicas), func(i int) (int64, bool) {
		r := &replicas[i]
		return r.Load, !r.Down && r.Pending == 0
	})
	if at >= 0 {
		return Place{Replica: at, Peer: -1}
	}
	if fromPeer {
		return wait
	}
	at = s.best(s.peers, blocks, bytes, len(peers), func(i int) (int64, bool) {
		p := &peers[i]
		return p.Load, !p.Down && p.Available > 0 && p.Queue <= s.tau
	})
	return Place{Replica: -1, Peer: at}
}

// best is the one of n that was sent the longest beginning of the prompt, or the least loaded where that is less than half
// of it; -1 when none is open.
func (s *SkyWalker) best(x *pick.Index, blocks []uint64, bytes int64, n int, of func(int) (load int64, open bool)) int {
	warm, lightest := -1, -1
	var longest, least, warmLoad int64
	for i := range n {
		load, open := of(i)
		if !open {
			continue
		}
		if lightest < 0 || load < least {
			lightest, least = i, load
		}
		if m := x.Match(int32(i), blocks); warm < 0 || m > longest || m == longest && load < warmLoad {
			warm, longest, warmLoad = i, m, load
		}
	}
	if longest == 0 || float64(longest) < skyMatch*float64(bytes) {
		return lightest
	}
	return warm
}

// Sent notes where a prompt was sent.
func (s *SkyWalker) Sent(to Place, blocks []uint64) {
	if to.Replica >= 0 {
		s.replicas.Insert(int32(to.Replica), blocks)
	}
	if to.Peer >= 0 {
		s.peers.Insert(int32(to.Peer), blocks)
	}
}
