package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// land is one region with the places that are nearest to it.
type land struct {
	continent, country string
	lat, lon           float64 // of the region
	dLat, dLon         float64 // places are at most this far from it, degrees
}

// lands are so far apart that every place's nearest region is its land's, whatever estimates distance. Region i answers
// with the address 192.0.2.(i+1).
var lands = []land{
	{"NA", "US", 39.04, -77.49, 8, 20},
	{"EU", "DE", 50.11, 8.68, 6, 12},
	{"AS", "JP", 35.68, 139.69, 5, 10},
}

const places = 20_000

// world is a synthetic database of cities with what it says of every IPv4 /24.
type world struct {
	path   string
	region []byte // by /24: the last octet of the right answer; 0: not to be asked
	asked  []uint32
}

// reserved are first octets in which some network is special: servers may rightly differ about them.
var reserved = map[int]bool{0: true, 10: true, 100: true, 127: true, 169: true, 172: true, 192: true, 198: true, 203: true}

// newWorld makes a database of about n networks in dir, or finds the one that was made before.
func newWorld(dir string, n int) (*world, error) {
	w := &world{path: filepath.Join(dir, fmt.Sprintf("world-%d.mmdb", n)), region: make([]byte, 1<<24)}
	var tree *mmdbwriter.Tree
	if _, err := os.Stat(w.path); errors.Is(err, os.ErrNotExist) {
		tree, err = mmdbwriter.New(mmdbwriter.Options{
			DatabaseType: "GeoIP2-City", RecordSize: 28, IPVersion: 6, IncludeReservedNetworks: true,
			Languages: []string{"en"}, Description: map[string]string{"en": "made up"},
		})
		if err != nil {
			return nil, err
		}
	}
	rng := rand.New(rand.NewPCG(20, 26))
	cities := make([]mmdbtype.Map, places)
	for i := range cities {
		cities[i] = city(i, rng)
	}
	for octet := 1; octet < 224; octet++ {
		if reserved[octet] {
			continue
		}
		for _, b := range split(uint32(octet)<<24, max(n/(223-len(reserved)), 1), rng) {
			place := rng.IntN(places/len(lands))*len(lands) + b.land
			w.mark(b)
			if tree == nil {
				continue
			}
			if err := tree.Insert(b.network(), cities[place]); err != nil {
				return nil, err
			}
		}
	}
	for p, r := range w.region {
		if r != 0 {
			w.asked = append(w.asked, uint32(p))
		}
	}
	if tree == nil {
		return w, nil
	}
	return w, w.write(tree)
}

func (w *world) write(tree *mmdbwriter.Tree) error {
	f, err := os.Create(w.path + ".new")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := tree.WriteTo(f); err != nil {
		return err
	}
	return os.Rename(w.path+".new", w.path)
}

func (w *world) mark(b block) {
	for i := range uint32(1) << (24 - b.bits) {
		w.region[b.base>>8+i] = byte(b.land + 1)
	}
}

// city is place i, in land i modulo their number.
func city(i int, rng *rand.Rand) mmdbtype.Map {
	l := &lands[i%len(lands)]
	return mmdbtype.Map{
		"city":      mmdbtype.Map{"names": mmdbtype.Map{"en": mmdbtype.String(fmt.Sprintf("City%05d", i))}},
		"continent": mmdbtype.Map{"code": mmdbtype.String(l.continent)},
		"country":   mmdbtype.Map{"iso_code": mmdbtype.String(l.country)},
		"location": mmdbtype.Map{
			"accuracy_radius": mmdbtype.Uint16(50),
			"latitude":        mmdbtype.Float64(l.lat + (2*rng.Float64()-1)*l.dLat),
			"longitude":       mmdbtype.Float64(l.lon + (2*rng.Float64()-1)*l.dLon),
		},
	}
}

// block is one network of the database.
type block struct {
	base uint32
	bits int
	land int
}

func (b block) network() *net.IPNet {
	ip := net.IPv4(byte(b.base>>24), byte(b.base>>16), byte(b.base>>8), byte(b.base)).To4()
	return &net.IPNet{IP: ip, Mask: net.CIDRMask(b.bits, 32)}
}

// split divides a /8 at random until there are n networks, none longer than a /24. Halves mostly stay in one land, as
// registries give networks out, and the larger of two is divided more often.
func split(base uint32, n int, rng *rand.Rand) []block {
	all := []block{{base, 8, rng.IntN(len(lands))}}
	for misses := 0; len(all) < n && misses < 100; {
		i := rng.IntN(len(all))
		if j := rng.IntN(len(all)); all[j].bits < all[i].bits {
			i = j
		}
		b := all[i]
		if b.bits == 24 {
			misses++
			continue
		}
		misses = 0
		other := block{b.base | 1<<(31-b.bits), b.bits + 1, b.land}
		if rng.IntN(10) == 0 {
			other.land = rng.IntN(len(lands))
		}
		all[i].bits++
		all = append(all, other)
	}
	return all
}
