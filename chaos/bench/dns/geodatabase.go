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

// testRegion is one region with the locations that are nearest to it.
type testRegion struct {
	continent, country   string
	lat, lon             float64 // of the region
	spreadLat, spreadLon float64 // locations are at most this far from it, degrees
}

// testRegions are so far apart that every location's nearest region is that of its country, by any estimate of
// distance. Region i answers with the address 192.0.2.(i+1).
var testRegions = []testRegion{
	{"NA", "US", 39.04, -77.49, 8, 20},
	{"EU", "DE", 50.11, 8.68, 6, 12},
	{"AS", "JP", 35.68, 139.69, 5, 10},
}

const placeCount = 20_000

// geoDatabase is a synthetic database of cities with the expected answer for every IPv4 /24.
type geoDatabase struct {
	path            string
	answerByNetwork []byte // by /24: the last octet of the right answer; 0: not queried
	askedNetworks   []uint32
}

// reservedOctets are first octets with special networks, for which servers may validly differ.
var reservedOctets = map[int]bool{0: true, 10: true, 100: true, 127: true, 169: true, 172: true, 192: true, 198: true, 203: true}

// newGeoDatabase makes a database of about n networks in dir, or uses an existing one.
func newGeoDatabase(dir string, n int) (*geoDatabase, error) {
	w := &geoDatabase{path: filepath.Join(dir, fmt.Sprintf("world-%d.mmdb", n)), answerByNetwork: make([]byte, 1<<24)}
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
	cities := make([]mmdbtype.Map, placeCount)
	for i := range cities {
		cities[i] = makeCity(i, rng)
	}
	for octet := 1; octet < 224; octet++ {
		if reservedOctets[octet] {
			continue
		}
		for _, b := range splitNetwork(uint32(octet)<<24, max(n/(223-len(reservedOctets)), 1), rng) {
			place := rng.IntN(placeCount/len(testRegions))*len(testRegions) + b.regionIndex
			w.markAnswers(b)
			if tree == nil {
				continue
			}
			if err := tree.Insert(b.ipNet(), cities[place]); err != nil {
				return nil, err
			}
		}
	}
	for p, r := range w.answerByNetwork {
		if r != 0 {
			w.askedNetworks = append(w.askedNetworks, uint32(p))
		}
	}
	if tree == nil {
		return w, nil
	}
	return w, w.writeDatabase(tree)
}

func (w *geoDatabase) writeDatabase(tree *mmdbwriter.Tree) error {
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

func (w *geoDatabase) markAnswers(b networkBlock) {
	for i := range uint32(1) << (24 - b.bits) {
		w.answerByNetwork[b.base>>8+i] = byte(b.regionIndex + 1)
	}
}

// makeCity is city i, in country i modulo their number.
func makeCity(i int, rng *rand.Rand) mmdbtype.Map {
	l := &testRegions[i%len(testRegions)]
	return mmdbtype.Map{
		"city":      mmdbtype.Map{"names": mmdbtype.Map{"en": mmdbtype.String(fmt.Sprintf("City%05d", i))}},
		"continent": mmdbtype.Map{"code": mmdbtype.String(l.continent)},
		"country":   mmdbtype.Map{"iso_code": mmdbtype.String(l.country)},
		"location": mmdbtype.Map{
			"accuracy_radius": mmdbtype.Uint16(50),
			"latitude":        mmdbtype.Float64(l.lat + (2*rng.Float64()-1)*l.spreadLat),
			"longitude":       mmdbtype.Float64(l.lon + (2*rng.Float64()-1)*l.spreadLon),
		},
	}
}

// networkBlock is one network of the database.
type networkBlock struct {
	base        uint32
	bits        int
	regionIndex int
}

func (b networkBlock) ipNet() *net.IPNet {
	ip := net.IPv4(byte(b.base>>24), byte(b.base>>16), byte(b.base>>8), byte(b.base)).To4()
	return &net.IPNet{IP: ip, Mask: net.CIDRMask(b.bits, 32)}
}

// splitNetwork divides a /8 at random until there are n networks, none longer than a /24. Halves mostly stay in one
// country, as registries assign networks, and larger networks are divided more often.
func splitNetwork(base uint32, n int, rng *rand.Rand) []networkBlock {
	all := []networkBlock{{base, 8, rng.IntN(len(testRegions))}}
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
		other := networkBlock{b.base | 1<<(31-b.bits), b.bits + 1, b.regionIndex}
		if rng.IntN(10) == 0 {
			other.regionIndex = rng.IntN(len(testRegions))
		}
		all[i].bits++
		all = append(all, other)
	}
	return all
}
