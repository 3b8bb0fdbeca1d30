package baseline

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/local/blockhash"
)

func hashBlocks(text string, n int) []uint64 {
	prompt := make([]byte, 0, n)
	for len(prompt) < n {
		prompt = append(prompt, text...)
	}
	return blockhash.AppendBlockHashes(nil, 1, prompt[:n])
}

// TestSkyWalkerSelectivePushing follows the published rule: replicas with nothing pending, the longest match among
// them from half of the prompt on, else the least loaded; then peers with a free replica and a short queue; then the
// queue.
func TestSkyWalkerSelectivePushing(t *testing.T) {
	const bytes = 4096
	s := NewSkyWalker(3, 2, MaxPeerQueue, 30_000, 4)
	prompt := hashBlocks("a tree of thoughts ", bytes)
	s.RecordSent(Destination{Replica: 0, Peer: -1}, prompt[:len(prompt)/4])
	s.RecordSent(Destination{Replica: 1, Peer: -1}, prompt)
	s.RecordSent(Destination{Replica: -1, Peer: 1}, prompt)
	replicas := []SkyWalkerReplica{{Load: 3}, {Load: 9}, {Load: 1}}
	peers := []SkyWalkerPeer{{Available: 1}, {Available: 1, Queue: MaxPeerQueue}}
	ask := func(want Destination, why string) {
		t.Helper()
		if got := s.ChooseDestination(prompt, bytes, replicas, peers, false); got != want {
			t.Fatalf("%s: chose %+v, want %+v", why, got, want)
		}
	}
	ask(Destination{1, -1}, "replica 1 was sent all of it")
	replicas[1].Pending = 1
	ask(Destination{2, -1}, "replica 0 was sent a quarter only: the least loaded")
	replicas[0].Pending, replicas[2].Pending = 1, 2
	ask(Destination{-1, 1}, "no replica is free, and peer 1 was sent all of it")
	peers[1].Queue++
	ask(Destination{-1, 0}, "peer 1's queue is too long")
	peers[0].Available = 0
	ask(stayQueued, "no worker is free")
	if !s.ChooseDestination(prompt, bytes, replicas, []SkyWalkerPeer{{Available: 3}}, true).StaysQueued() {
		t.Fatal("what came from a peer is pushed on")
	}
	replicas[0].Pending, replicas[0].Down = 0, true
	ask(stayQueued, "the only free replica is down")
}

// TestSkyWalkerPushesOnlyWhereThereIsRoom checks the rule's guarantees in any state.
func TestSkyWalkerPushesOnlyWhereThereIsRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := make([]SkyWalkerReplica, rapid.IntRange(0, 6).Draw(t, "replicas"))
		peers := make([]SkyWalkerPeer, rapid.IntRange(0, 4).Draw(t, "peers"))
		s := NewSkyWalker(len(replicas), len(peers), 4, 10_000, 4)
		prompt := hashBlocks("words ", 2048)
		free, open := false, false
		for i := range replicas {
			replicas[i] = SkyWalkerReplica{Pending: rapid.Int64Range(0, 1).Draw(t, "pending"), Load: rapid.Int64Range(0, 9).Draw(t, "load"), Down: rapid.Bool().Draw(t, "down")}
			free = free || !replicas[i].Down && replicas[i].Pending == 0
			s.RecordSent(Destination{i, -1}, prompt[:rapid.IntRange(0, len(prompt)).Draw(t, "sent")])
		}
		for i := range peers {
			peers[i] = SkyWalkerPeer{Available: rapid.IntRange(0, 2).Draw(t, "free"), Queue: rapid.Int64Range(0, 8).Draw(t, "queue"), Down: rapid.Bool().Draw(t, "peer down")}
			open = open || !peers[i].Down && peers[i].Available > 0 && peers[i].Queue <= 4
		}
		got := s.ChooseDestination(prompt, 2048, replicas, peers, rapid.Bool().Draw(t, "from a peer"))
		switch {
		case got.Replica >= 0 && (replicas[got.Replica].Down || replicas[got.Replica].Pending > 0):
			t.Fatalf("pushed to a replica that is full: %+v", got)
		case got.Replica < 0 && free:
			t.Fatalf("a free replica was left: %+v", got)
		case got.Peer >= 0 && (peers[got.Peer].Down || peers[got.Peer].Available == 0 || peers[got.Peer].Queue > 4 || got.Replica >= 0):
			t.Fatalf("pushed to a peer that has no room: %+v", got)
		}
	})
}

// TestGORGOChargesLocalQueuesOnly follows the published cost: 1,000 unmatched tokens locally with 2,000 queued and
// 500 running cost 0.329 s; 1,000 at a peer 100 ms away cost 0.194 s with any queue there, and 0.664 s with 5,000
// queued tokens priced.
func TestGORGOChargesLocalQueuesOnly(t *testing.T) {
	home := GORGONode{Unmatched: 1000, Queued: 2000, Running: 500, Local: true}
	peer := GORGONode{Unmatched: 1000, Queued: 5000, RTT: 0.1}
	published, priced := GORGO{}, GORGO{PriceQueues: true}
	for _, c := range []struct {
		g    *GORGO
		n    *GORGONode
		want float64
	}{{&published, &home, 0.329}, {&published, &peer, 0.194}, {&priced, &peer, 0.664}} {
		if got := c.g.NodeCost(c.n); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("the cost is %v, want %v", got, c.want)
		}
	}
	if published.ChooseNode([]GORGONode{home, peer}) != 1 || priced.ChooseNode([]GORGONode{home, peer}) != 0 {
		t.Error("the published rule goes to the peer, the priced one stays")
	}
	if published.ChooseNode([]GORGONode{{Down: true}}) != -1 {
		t.Error("chose a node that is down")
	}
}

func TestGORGOChoosesTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := GORGO{PriceQueues: rapid.Bool().Draw(t, "priced")}
		nodes := make([]GORGONode, rapid.IntRange(0, 6).Draw(t, "nodes"))
		for i := range nodes {
			nodes[i] = GORGONode{
				RTT: rapid.Float64Range(0, 0.3).Draw(t, "rtt"), Unmatched: rapid.Int64Range(0, 9000).Draw(t, "unmatched"),
				Queued: rapid.Int64Range(0, 9000).Draw(t, "queued"), Running: rapid.Int64Range(0, 9000).Draw(t, "running"),
				Local: rapid.Bool().Draw(t, "local"), Down: rapid.Bool().Draw(t, "down"),
			}
		}
		at := g.ChooseNode(nodes)
		for i := range nodes {
			if n := &nodes[i]; !n.Down && (at < 0 || g.NodeCost(n) < g.NodeCost(&nodes[at])) {
				t.Fatalf("chose %d, and %d costs less", at, i)
			}
		}
		if at >= 0 && nodes[at].Down {
			t.Fatal("chose a node that is down")
		}
	})
}

func testRNG() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
