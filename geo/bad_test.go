package geo

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// raw writes a database by hand, so that it can be wrong where a writer would not let it: a tree of 32-bit records,
// the data section, and metadata.
type raw struct {
	nodes [][2]uint32
	data  []byte
	meta  []byte
}

const mmdbMarker = "\xab\xcd\xefMaxMind.com"

func (r raw) bytes() []byte {
	var b []byte
	for _, n := range r.nodes {
		b = binary.BigEndian.AppendUint32(b, n[0])
		b = binary.BigEndian.AppendUint32(b, n[1])
	}
	b = append(b, make([]byte, 16)...)
	b = append(b, r.data...)
	return append(append(b, mmdbMarker...), r.meta...)
}

// The types of the data section, those up to 7 in the control byte's top bits.
func mmStr(s string) []byte { return append([]byte{2<<5 | byte(len(s))}, s...) }
func mmMap(n int) []byte    { return []byte{7<<5 | byte(n)} }
func mmUint(v uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{6<<5 | 4}, v)
}

func mmDouble(v float64) []byte {
	return binary.BigEndian.AppendUint64([]byte{3<<5 | 8}, math.Float64bits(v))
}
func mmPointer(to int) []byte { return []byte{1<<5 | byte(to>>8), byte(to)} }
func mmArray(n int) []byte    { return []byte{byte(n), 4} } // extended type 11

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func mmMeta(nodes, recordSize, ipVersion, major uint32) []byte {
	return cat(mmMap(9), mmStr("binary_format_major_version"), mmUint(major), mmStr("binary_format_minor_version"), mmUint(0),
		mmStr("build_epoch"), mmUint(1), mmStr("database_type"), mmStr("Test"), mmStr("description"), mmMap(0),
		mmStr("ip_version"), mmUint(ipVersion), mmStr("languages"), mmArray(0), mmStr("node_count"), mmUint(nodes),
		mmStr("record_size"), mmUint(recordSize))
}

func mmPlace(country string, lat, lon []byte) []byte {
	return cat(mmMap(2), mmStr("country"), mmMap(1), mmStr("iso_code"), mmStr(country),
		mmStr("location"), mmMap(2), mmStr("latitude"), lat, mmStr("longitude"), lon)
}

// one is a database whose whole first half is one place, with its data where the tree points to.
func one(data []byte) raw {
	return raw{nodes: [][2]uint32{{1 + 16, 1}}, data: data, meta: mmMeta(1, 32, 4, 2)}
}

// TestRawDatabaseIsGood holds that what the bad ones are made from is good.
func TestRawDatabaseIsGood(t *testing.T) {
	a := open(t, Config{Databases: []string{save(t, one(mmPlace("FR", mmDouble(48.9), mmDouble(2.3))).bytes())}})
	if f := at(t, a, "1.2.3.4"); f.Place.Country != "FR" || f.Place.Lat != 48.9 || f.Prefix.String() != "0.0.0.0/1" && f.Source != SourceDatabase {
		t.Errorf("%+v", f)
	}
}

// badDatabases are broken in each part of the format.
func badDatabases(t testing.TB) map[string][]byte {
	good := mmPlace("FR", mmDouble(48.9), mmDouble(2.3))
	whole := one(good).bytes()
	with := func(f func(r *raw)) []byte { r := one(good); f(&r); return r.bytes() }
	meta := func(nodes, size, ip, major uint32) []byte {
		return with(func(r *raw) { r.meta = mmMeta(nodes, size, ip, major) })
	}
	marked := bytes.Index(whole, []byte(mmdbMarker))
	deep := bytes.Repeat(mmArray(1), 5000)
	return map[string][]byte{
		"empty":                     {},
		"text":                      []byte("not a database"),
		"an HTML error page":        []byte("<html><body>429 Too Many Requests</body></html>"),
		"no metadata":               whole[:marked],
		"marker alone":              []byte(mmdbMarker),
		"marker at the end":         whole[:marked+len(mmdbMarker)],
		"half the metadata":         whole[:marked+len(mmdbMarker)+60],
		"metadata is no map":        with(func(r *raw) { r.meta = mmStr("metadata") }),
		"no tree":                   whole[marked:],
		"half the tree":             whole[6:],
		"more nodes than bytes":     meta(1<<20, 32, 4, 2),
		"nodes past all memory":     meta(math.MaxUint32, 32, 6, 2),
		"no nodes":                  meta(0, 32, 4, 2),
		"record size of nothing":    meta(1, 0, 4, 2),
		"record size of 7":          meta(1, 7, 4, 2),
		"record size of 255":        meta(1, 255, 4, 2),
		"IP version 5":              meta(1, 32, 5, 2),
		"format of the future":      meta(1, 32, 4, 3),
		"tree that runs in circles": with(func(r *raw) { r.nodes = [][2]uint32{{0, 0}} }),
		"tree past the data":        with(func(r *raw) { r.nodes = [][2]uint32{{1 << 30, 1}} }),
		"tree into the separator":   with(func(r *raw) { r.nodes = [][2]uint32{{5, 1}} }),
		"pointer past the data":     one(mmPointer(2000)).bytes(),
		"pointer to itself":         one(mmPointer(0)).bytes(),
		"map larger than the file":  one([]byte{7<<5 | 31, 0xff, 0xff, 0xff}).bytes(),
		"string larger than itself": one(cat(mmMap(1), []byte{2<<5 | 28})).bytes(),
		"nested without end":        one(cat(mmMap(1), mmStr("city"), deep)).bytes(),
		"latitude is a text":        one(mmPlace("FR", mmStr("north"), mmDouble(2))).bytes(),
		"country is a number":       one(cat(mmMap(1), mmStr("country"), mmMap(1), mmStr("iso_code"), mmUint(3))).bytes(),
		"of another kind": write(t, 6, network{"81.2.69.0/24", mmdbtype.Map{
			"autonomous_system_number": mmdbtype.Uint32(64500),
		}}),
		"of no networks":             write(t, 6),
		"of unknown countries alone": one(mmPlace("ZZ", mmDouble(999), mmDouble(2))).bytes(),
		"nowhere by NaN":             one(mmPlace("ZZ", mmDouble(math.NaN()), mmDouble(2))).bytes(),
	}
}

// TestBadDatabaseNeverReplacesAGoodOne lays each bad file over a good one that is in use.
func TestBadDatabaseNeverReplacesAGoodOne(t *testing.T) {
	path := save(t, write(t, 6, network{"81.2.69.0/24", city("London", "GB", 51.5, -0.1, 20)}))
	l, err := NewLive(Config{Databases: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	good := l.Atlas()
	for name, body := range badDatabases(t) {
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := l.Reload(); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want one that names the file", name, err)
		}
		if l.Atlas() != good {
			t.Fatalf("%s has replaced a good one", name)
		}
	}
	expect(t, l.Atlas(), "81.2.69.1", "London", SourceDatabase, "81.2.69.0/24", 24)
}

// TestSpoiledBytesNeverReplaceAGoodOneByNothing breaks single bytes: a reload either fails and changes nothing, or gives
// an Atlas that places something.
func TestSpoiledBytesNeverReplaceAGoodOneByNothing(t *testing.T) {
	body := write(t, 6, network{"81.2.69.0/24", city("London", "GB", 51.5, -0.1, 20)})
	path := save(t, body)
	l, err := NewLive(Config{Databases: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := 0; i < len(body); i += max(len(body)/150, 1) {
		spoiled := bytes.Clone(body)
		spoiled[i] ^= 0xff
		if err := os.WriteFile(path, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		before := l.Atlas()
		if err := l.Reload(); err != nil {
			refused++
			if l.Atlas() != before {
				t.Fatalf("byte %d: refused and taken", i)
			}
		}
		if len(l.Atlas().Cells()) == 0 {
			t.Fatalf("byte %d: an atlas without places is in force", i)
		}
	}
	if refused == 0 {
		t.Error("no spoiled file was refused")
	}
	t.Logf("%d refused", refused)
}

// TestAccuracyRadius: a city that may be anywhere within 500 km is only worth its country, at the border and past it.
func TestAccuracyRadius(t *testing.T) {
	for radius, want := range map[uint16]string{0: "Lyon", 5: "Lyon", 500: "Lyon", 501: "", 1000: ""} {
		a := open(t, Config{Databases: []string{save(t, write(t, 6, network{"81.0.0.0/8", city("Lyon", "FR", 45.8, 4.8, radius)}))}})
		f := at(t, a, "81.1.1.1")
		centre, _ := countryPlace("FR")
		if f.Place.City != want || f.Place.Country != "FR" || (want == "") != (f.Place == centre) {
			t.Errorf("radius %d: %+v", radius, f.Place)
		}
		if want != "" && f.Place.AccuracyKM != float64(radius) {
			t.Errorf("radius %d is told as %g", radius, f.Place.AccuracyKM)
		}
	}
	far := city("Somewhere", "ZZ", 45.8, 4.8, 800) // no country to fall back to
	near := network{"82.0.0.0/8", city("Lyon", "FR", 45.8, 4.8, 5)}
	a := open(t, Config{Databases: []string{save(t, write(t, 6, network{"81.0.0.0/8", far}, near))}})
	if f := at(t, a, "81.1.1.1"); f.Source != SourceNone || f.Cell != NoCell {
		t.Errorf("a guess without a country is %+v", f)
	}
}
