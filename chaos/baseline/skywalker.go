package baseline

import (
	"github.com/spillway-lb/spillway/local/prefix"
)

// SkyWalkerReplica is the balancer's state of one replica of its region: from its last probe and from requests sent
// to it.
type SkyWalkerReplica struct {
	// Pending requests wait in the engine, which means that its batch is full.
	Pending int64
	// Load is the number of the balancer's requests there, used for "least loaded".
	Load int64
	// Down excludes it.
	Down bool
}

// SkyWalkerPeer is the balancer's state of another region's balancer: from its last probe and from requests sent to
// it.
type SkyWalkerPeer struct {
	// Available replicas of that region have nothing pending.
	Available int
	// Queue is the number of requests that wait at that region's balancer.
	Queue int64
	// Load is the number of this balancer's requests there.
	Load int64
	// Down excludes it.
	Down bool
}

// Constants of SkyWalker's balancer (EuroSys'26, section 4, and its code).
const (
	// ProbeIntervalMillis is the interval of probes of replicas and peers, in milliseconds.
	ProbeIntervalMillis = 100
	// minMatchShare is the fraction of the prompt that must match for the match to count.
	minMatchShare = 0.5
	// MaxPeerQueue is the longest queue of a peer to which requests are sent.
	MaxPeerQueue = 10
	// maxTrieBytes is the memory of each of a balancer's two tries.
	maxTrieBytes = 64 << 20
)

// SkyWalker is one region's balancer: it pushes a request to a replica only while that has nothing pending, to
// another region only while none of its own is free and that region has a free one, and queues it otherwise, first
// come, first served. It records what it sent to each replica and region, and prefers the one that was sent the
// longest prefix of the prompt.
type SkyWalker struct {
	maxPeerQueue int64
	replicas     *prefix.Index
	peers        *prefix.Index
}

// NewSkyWalker returns a balancer that pushes to peers with at most tau requests in their queues. Each replica's
// cache is assumed to hold the last kv tokens, at the given number of bytes each.
func NewSkyWalker(replicas, peers int, tau, kv int64, bytesPerToken float64) *SkyWalker {
	s := &SkyWalker{maxPeerQueue: tau, replicas: prefix.NewIndex(maxTrieBytes), peers: prefix.NewIndex(maxTrieBytes)}
	for i := range replicas {
		s.replicas.SetCacheSize(int32(i), kv, bytesPerToken)
	}
	for i := range peers {
		s.peers.SetCacheSize(int32(i), kv*int64(max(replicas, 1)), bytesPerToken)
	}
	return s
}

// Destination is where a request goes: to a replica of the region, to a peer, or to the queue.
type Destination struct {
	Replica int // -1 for none
	Peer    int // -1 for none
}

// stayQueued is the Destination of a request that stays in the balancer's queue.
var stayQueued = Destination{Replica: -1, Peer: -1}

// StaysQueued reports whether the request stays in the balancer's queue.
func (p Destination) StaysQueued() bool { return p == stayQueued }

// ChooseDestination chooses where a prompt of these blocks and bytes goes. A request that came from a peer is not
// pushed to another.
func (s *SkyWalker) ChooseDestination(blocks []uint64, bytes int64, replicas []SkyWalkerReplica, peers []SkyWalkerPeer, fromPeer bool) Destination {
	at := s.bestMatch(s.replicas, blocks, bytes, len(replicas), func(i int) (int64, bool) {
		r := &replicas[i]
		return r.Load, !r.Down && r.Pending == 0
	})
	if at >= 0 {
		return Destination{Replica: at, Peer: -1}
	}
	if fromPeer {
		return stayQueued
	}
	at = s.bestMatch(s.peers, blocks, bytes, len(peers), func(i int) (int64, bool) {
		p := &peers[i]
		return p.Load, !p.Down && p.Available > 0 && p.Queue <= s.maxPeerQueue
	})
	return Destination{Replica: -1, Peer: at}
}

// bestMatch is the one of n that was sent the longest prefix of the prompt, or the least loaded if that is less than
// half of it; -1 when none is open.
func (s *SkyWalker) bestMatch(x *prefix.Index, blocks []uint64, bytes int64, n int, of func(int) (load int64, open bool)) int {
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
		if m := x.MatchedBytes(int32(i), blocks); warm < 0 || m > longest || m == longest && load < warmLoad {
			warm, longest, warmLoad = i, m, load
		}
	}
	if longest == 0 || float64(longest) < minMatchShare*float64(bytes) {
		return lightest
	}
	return warm
}

// RecordSent records where a prompt was sent.
func (s *SkyWalker) RecordSent(to Destination, blocks []uint64) {
	if to.Replica >= 0 {
		s.replicas.InsertPrompt(int32(to.Replica), blocks)
	}
	if to.Peer >= 0 {
		s.peers.InsertPrompt(int32(to.Peer), blocks)
	}
}
