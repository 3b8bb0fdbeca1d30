package global

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// testimonyLasts is how long a node's testimony counts: it is given anew every 250 ms.
const testimonyLasts = time.Second

// testimony is what one global node says to the others of the gateways it hears, so that the loss of one node's link is
// not taken for the death of a region.
type testimony struct {
	// Settled says that the node has been up for long enough for its silence about a region to mean something.
	Settled bool `json:"settled"`
	// Heard are the gateways that are not lost to it, as region/gateway, in order.
	Heard []string `json:"heard"`
	// Plans is the newest version of a plan that the node reads; 0: it is of a release that does not say.
	Plans int `json:"plans,omitempty"`
}

// hears reports whether any gateway of a region is heard.
func (t *testimony) hears(region string) bool {
	prefix := region + "/"
	i, _ := slices.BinarySearch(t.Heard, prefix)
	return i < len(t.Heard) && len(t.Heard[i]) > len(prefix) && t.Heard[i][:len(prefix)] == prefix
}

// testify is this node's own testimony.
func testify(children *capacity.View, settled bool) testimony {
	t := testimony{Settled: settled, Heard: []string{}, Plans: steer.PlanVersion}
	for i := range children.Children {
		if c := &children.Children[i]; c.State != capacity.Lost {
			t.Heard = append(t.Heard, c.Summary.Path.String())
		}
	}
	slices.Sort(t.Heard)
	return t
}

var errTestimony = errors.New("testimony is not what a global node says")

// decodeTestimony reads another node's testimony, and puts it into order if it is not.
func decodeTestimony(b []byte) (t testimony, err error) {
	if err := json.Unmarshal(b, &t); err != nil {
		return testimony{}, errTestimony
	}
	if len(t.Heard) > capacity.MaxChildren {
		return testimony{}, errTestimony
	}
	slices.Sort(t.Heard)
	return t, nil
}

// bench holds the newest testimony of every other node. Nodes are the voters of the configuration, so it is bounded.
type bench struct {
	mu   sync.Mutex
	said map[string]sworn
	wake func() // called when a testimony differs from the last one of its node
}

type sworn struct {
	testimony
	at time.Time
}

func newBench(wake func()) *bench { return &bench{said: map[string]sworn{}, wake: wake} }

// take books what a node says now.
func (b *bench) take(from string, body []byte) { b.takeAt(from, body, time.Now()) }

// takeAt books what a node says. What cannot be read counts as nothing said.
func (b *bench) takeAt(from string, body []byte, now time.Time) {
	t, err := decodeTestimony(body)
	if err != nil {
		return
	}
	b.mu.Lock()
	was := b.said[from]
	b.said[from] = sworn{t, now}
	b.mu.Unlock()
	if was.Settled != t.Settled || !slices.Equal(was.Heard, t.Heard) {
		b.wake()
	}
}

// fresh is every testimony that still counts, by node.
func (b *bench) fresh(now time.Time) map[string]testimony {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]testimony, len(b.said))
	for name, s := range b.said {
		if now.Sub(s.at) <= testimonyLasts {
			out[name] = s.testimony
		}
	}
	return out
}

// quorum is what the nodes together say of regions.
type quorum struct {
	self   string
	voters []string
	others map[string]testimony
	// muffled are regions whose silence says nothing, because this node fell deaf to all at once.
	muffled steer.Set
}

// hearing are the other nodes that hear a region, by name.
func (q *quorum) hearing(region string) (nodes []string) {
	for name, t := range q.others {
		if t.hears(region) {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// dead reports whether a majority of the voters hears a region no longer, given that this node does not.
func (q *quorum) dead(region string) bool {
	deaf := 0
	for _, name := range q.voters {
		t, said := q.others[name]
		if name == q.self || said && t.Settled && !t.hears(region) {
			deaf++
		}
	}
	return 2*deaf > len(q.voters)
}

// quorum is what is known of the other nodes now.
func (s *Server) quorum(now time.Time) *quorum {
	q := &quorum{self: s.cfg.Name, others: s.bench.fresh(now)}
	for _, m := range s.node.Members() {
		if m.Voter {
			q.voters = append(q.voters, m.ID)
		}
	}
	return q
}

// observers counts the nodes that hear a region.
func (v *View) observers(region int) int {
	n := len(v.quorum.hearing(v.spec.Regions[region].Name))
	if v.regions[region].heard && !v.regions[region].unheard {
		n++
	}
	return n
}

// hearsay says in words what is known of a region that only others hear.
func (r *regionView) hearsay() string {
	out := "not heard here, but by " + strings.Join(r.heardBy, ", ")
	if r.dead {
		return out + ": a majority of the nodes has lost it, so plans do without it"
	}
	return out + ": look at the network between this node and its gateways"
}

// testimony is what this node tells the others now.
func (s *Server) testimony() []byte {
	now := time.Now()
	b, err := json.Marshal(testify(s.ingest.view(now), now.Sub(s.started) > grace && !s.muffled.Load()))
	if err != nil {
		return nil // strings and a bool: it does not come to this
	}
	return b
}
