package uplink

import (
	"cmp"
	"math/bits"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

// Parts that a directive leaves out when it exceeds maxDirectiveBytes, in the order in which they are dropped.
const (
	omitPrefixes     = iota // sketches of hot prefixes of all peers
	omitPeers               // whole peers
	omitDrainReasons        // texts of drains
	numOmitted
)

// omittedNames are the values of the label part.
var omittedNames = [numOmitted]string{"prefixes", "peers", "reasons"}

// omittedCounts counts the parts that one directive leaves out.
type omittedCounts [numOmitted]int

// maxTagBytes is the size of the tag of any field of a Directive, at most.
const maxTagBytes = 2

// fitDirective adds the peers to the policy in p and drops what does not fit: prefixes, then peers, then the reasons
// of drains. The policy itself is always sent, or an error results. A malformed peer counts as dropped: it must not
// keep the policy from the child.
func fitDirective(p *uplinkpb.Directive, peers []PeerRegion) (left omittedCounts) {
	size := proto.Size(p)
	if size > maxDirectiveBytes {
		for _, x := range p.Drains {
			if x.Reason != "" {
				left[omitDrainReasons]++
			}
			x.Reason = ""
		}
		size = proto.Size(p)
	}
	all, sum := encodePeers(peers, false)
	left[omitPeers] = len(peers) - len(all)
	if size+sum > maxDirectiveBytes {
		left[omitPrefixes] = 1
		all, sum = encodePeers(peers, true)
	}
	if over := size + sum - maxDirectiveBytes; over > 0 {
		n := len(all)
		all = dropPeers(all, over)
		left[omitPeers] += n - len(all)
	}
	p.Peers = all
	return left
}

// encodePeers encodes the well-formed peers, and returns the size that they have inside a directive.
func encodePeers(peers []PeerRegion, bare bool) (out []*uplinkpb.Peer, sum int) {
	for i := range peers[:min(len(peers), maxPeers)] {
		x := peers[i]
		x.Gateways = x.Gateways[:min(len(x.Gateways), maxGateways)]
		if bare && x.Summary != nil {
			x.Summary = withoutPrefixes(x.Summary)
		}
		if x.checkPeer() != nil {
			continue
		}
		w, err := peerToPB(&x)
		if err != nil {
			continue
		}
		out, sum = append(out, w), sum+peerSize(w)
	}
	return out, sum
}

func peerSize(w *uplinkpb.Peer) int { return maxTagBytes + protowire.SizeBytes(proto.Size(w)) }

func withoutPrefixes(s *capacity.Summary) *capacity.Summary {
	out := *s
	out.Models = slices.Clone(s.Models)
	for i := range out.Models {
		out.Models[i].Prefixes = nil
	}
	return &out
}

// dropPeers drops peers of at least over bytes. Those of the largest power of two go first, so that a region that
// inflates its summary is dropped first; among peers of similar size the farthest goes first.
func dropPeers(all []*uplinkpb.Peer, over int) []*uplinkpb.Peer {
	order := make([]int, len(all))
	sizes := make([]int, len(all))
	for i, w := range all {
		order[i], sizes[i] = i, peerSize(w)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(bits.Len(uint(sizes[b])), bits.Len(uint(sizes[a]))), cmp.Compare(all[b].RttNano, all[a].RttNano))
	})
	drop := make([]bool, len(all))
	for _, i := range order {
		if over <= 0 {
			break
		}
		drop[i], over = true, over-sizes[i]
	}
	out := make([]*uplinkpb.Peer, 0, len(all))
	for i, w := range all {
		if !drop[i] {
			out = append(out, w)
		}
	}
	return out
}
