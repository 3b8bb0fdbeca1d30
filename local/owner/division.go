package owner

import (
	"math/bits"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Division says who serves which worker. It does not change. The zero Division gives every worker to who asks.
type Division struct {
	self    string
	members []member
}

type member struct {
	name    string
	hash    uint64
	workers []string // sorted; nil: not known
}

// Divide says who serves what at now.
func (z *Zone) Divide(now time.Time) Division {
	d := Division{self: z.self}
	for _, name := range z.live(now) {
		m := member{name: name, hash: xxhash.Sum64String(name)}
		if c := z.contacts[name]; c != nil && name != z.self {
			m.workers = c.workers
		}
		d.members = append(d.members, m)
	}
	return d
}

// Members are the instances that the workers are divided among, in order.
func (d *Division) Members() []string {
	out := make([]string, len(d.members))
	for i := range d.members {
		out[i] = d.members[i].name
	}
	return out
}

// Owner is the instance that serves a worker which this one knows. An instance that has said which workers it has reached
// serves no others. One that has not is taken to have them all, but for those that only came to us: a worker that signed
// itself in here is ours until a sibling says that it has it too.
func (d *Division) Owner(worker string, cameToUs bool) string {
	best, most := d.self, uint64(0)
	w := xxhash.Sum64String(worker)
	for i := range d.members {
		m := &d.members[i]
		if m.name != d.self {
			if m.workers == nil && cameToUs {
				continue
			}
			if _, found := slices.BinarySearch(m.workers, worker); m.workers != nil && !found {
				continue
			}
		}
		if s := mix(w, m.hash); s >= most {
			best, most = m.name, s
		}
	}
	return best
}

// mix scatters a pair of hashes.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd1b54a32d192ed03)
	h := hi ^ lo
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}
