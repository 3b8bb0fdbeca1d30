package uplink

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink/uplinkpb"
)

// Directive is what a parent sends to a child: policy, drains, and the state of its peers.
type Directive struct {
	// Generation rises when the replicated state is restored from an archive or recovered from a lost majority; 0:
	// never, or the parent runs an earlier release. It is compared before Index, see Position.
	Generation uint64
	// Index is the applied index of the replicated state from which the directive was made. Of several parents'
	// directives of the greatest generation, a child applies the one with the greatest index.
	Index uint64
	// SpecVersion numbers Spec, the operator's spec in its canonical text. Empty: no spec yet.
	SpecVersion uint64
	Spec        []byte
	// PlanEpoch numbers the steering plan in force, for explanations.
	PlanEpoch uint64
	// Drains in force, by path.
	Drains []ActiveDrain
	// Peers are the other regions, for spilling.
	Peers []PeerRegion
	// TicketKeys verify redirect tickets, newest first. They are secrets: never log a Directive.
	TicketKeys [][]byte
	// PrefixSeed is the seed of the hashes that identify hot prefixes in summaries, so that parent and child use the
	// same; 0: prefixes are not reported. It is a secret: with it, guesses of prompts can be tested.
	PrefixSeed uint64
	// ZoneInstances are the live instances of the child's zone, itself included, if the child is a local instance.
	// Empty: the parent does not report them.
	ZoneInstances []PeerGateway
	// StageNumber is the number of the stage in progress, 0 if there is none: outcomes are reported under it.
	StageNumber uint64
	// PersistedAt is when the directive was written to disk; zero for one received from a parent.
	PersistedAt time.Time
	// IsStaged means that Spec is the staged one, and this child applies it.
	IsStaged bool
	// Grant is the part of tenants' quotas that the child may use; nil from a parent that is not the leader.
	Grant *QuotaGrant
}

// ActiveDrain requests that a region, zone or worker gets no new work.
type ActiveDrain struct {
	Path   string
	Until  time.Time // zero: until removed
	Reason string
	// Start and Over: traffic leaves evenly from Start until Over has passed. Over 0: it leaves at once.
	Start time.Time
	Over  time.Duration
}

// TrafficShare is the share of new traffic that the drain leaves in place at now: 0 when the drain is complete, and 1
// when it has ended.
func (d *ActiveDrain) TrafficShare(now time.Time) float64 {
	if !d.Until.IsZero() && !now.Before(d.Until) {
		return 1
	}
	return spec.DrainShare(d.Start, d.Over, now)
}

// PeerRegion is another region as seen by the parent.
type PeerRegion struct {
	Region   string
	Gateways []PeerGateway
	// Summary of the region; nil when unknown.
	Summary *capacity.Summary
	// Age of Summary when the directive was made; RTT between the regions, predicted or measured.
	Age, RTT time.Duration
	// RTTSamples is how many measurements are in the RTT; 0: it is predicted from the distance.
	RTTSamples int64
}

// PeerGateway is one gateway of a peer region, or one instance of a zone, with the address at which it accepts
// forwarded requests, "host:port".
type PeerGateway struct {
	Name, Endpoint string
}

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
	for i, m := range out.Models {
		bare := *m
		bare.Prefixes = nil
		out.Models[i] = &bare
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
