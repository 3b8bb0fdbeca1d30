package geo

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// rawDatabase encodes a database directly, so that it can have errors that a writer library prevents: a tree of
// 32-bit records, the data section, and metadata.
type rawDatabase struct {
	nodes [][2]uint32
	data  []byte
	meta  []byte
}

const mmdbMarker = "\xab\xcd\xefMaxMind.com"

func (r rawDatabase) encodeBytes() []byte {
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

func concatBytes(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func mmMeta(nodes, recordSize, ipVersion, major uint32) []byte {
	return concatBytes(mmMap(9), mmStr("binary_format_major_version"), mmUint(major), mmStr("binary_format_minor_version"), mmUint(0),
		mmStr("build_epoch"), mmUint(1), mmStr("database_type"), mmStr("Test"), mmStr("description"), mmMap(0),
		mmStr("ip_version"), mmUint(ipVersion), mmStr("languages"), mmArray(0), mmStr("node_count"), mmUint(nodes),
		mmStr("record_size"), mmUint(recordSize))
}

func mmLocation(country string, lat, lon []byte) []byte {
	return concatBytes(mmMap(2), mmStr("country"), mmMap(1), mmStr("iso_code"), mmStr(country),
		mmStr("location"), mmMap(2), mmStr("latitude"), lat, mmStr("longitude"), lon)
}

// oneLocationDatabase is a database whose first half is one location, with its data where the tree points to.
func oneLocationDatabase(data []byte) rawDatabase {
	return rawDatabase{nodes: [][2]uint32{{1 + 16, 1}}, data: data, meta: mmMeta(1, 32, 4, 2)}
}

// TestRawDatabaseIsGood checks that the base of the invalid databases is valid.
func TestRawDatabaseIsGood(t *testing.T) {
	a := openAtlas(t, Config{Databases: []string{saveDatabase(t, oneLocationDatabase(mmLocation("FR", mmDouble(48.9), mmDouble(2.3))).encodeBytes())}})
	if f := locateAddr(t, a, "1.2.3.4"); f.Location.Country != "FR" || f.Location.Lat != 48.9 || f.Prefix.String() != "0.0.0.0/1" && f.Source != SourceDatabase {
		t.Errorf("%+v", f)
	}
}

// badDatabases returns databases with an error in each part of the format.
func badDatabases(t testing.TB) map[string][]byte {
	good := mmLocation("FR", mmDouble(48.9), mmDouble(2.3))
	whole := oneLocationDatabase(good).encodeBytes()
	with := func(f func(r *rawDatabase)) []byte { r := oneLocationDatabase(good); f(&r); return r.encodeBytes() }
	meta := func(nodes, size, ip, major uint32) []byte {
		return with(func(r *rawDatabase) { r.meta = mmMeta(nodes, size, ip, major) })
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
		"metadata is no map":        with(func(r *rawDatabase) { r.meta = mmStr("metadata") }),
		"no tree":                   whole[marked:],
		"half the tree":             whole[6:],
		"more nodes than bytes":     meta(1<<20, 32, 4, 2),
		"nodes past all memory":     meta(math.MaxUint32, 32, 6, 2),
		"no nodes":                  meta(0, 32, 4, 2),
		"record size of nothing":    meta(1, 0, 4, 2),
		"record size of 7":          meta(1, 7, 4, 2),
		"record size of 255":        meta(1, 255, 4, 2),
		"IP version 5":              meta(1, 32, 5, 2),
		"later format":              meta(1, 32, 4, 3),
		"tree that runs in circles": with(func(r *rawDatabase) { r.nodes = [][2]uint32{{0, 0}} }),
		"tree past the data":        with(func(r *rawDatabase) { r.nodes = [][2]uint32{{1 << 30, 1}} }),
		"tree into the separator":   with(func(r *rawDatabase) { r.nodes = [][2]uint32{{5, 1}} }),
		"pointer past the data":     oneLocationDatabase(mmPointer(2000)).encodeBytes(),
		"pointer to itself":         oneLocationDatabase(mmPointer(0)).encodeBytes(),
		"map larger than the file":  oneLocationDatabase([]byte{7<<5 | 31, 0xff, 0xff, 0xff}).encodeBytes(),
		"string larger than itself": oneLocationDatabase(concatBytes(mmMap(1), []byte{2<<5 | 28})).encodeBytes(),
		"nested without end":        oneLocationDatabase(concatBytes(mmMap(1), mmStr("city"), deep)).encodeBytes(),
		"latitude is a text":        oneLocationDatabase(mmLocation("FR", mmStr("north"), mmDouble(2))).encodeBytes(),
		"country is a number":       oneLocationDatabase(concatBytes(mmMap(1), mmStr("country"), mmMap(1), mmStr("iso_code"), mmUint(3))).encodeBytes(),
		"of another kind": writeDatabase(t, 6, databaseNetwork{"81.2.69.0/24", mmdbtype.Map{
			"autonomous_system_number": mmdbtype.Uint32(64500),
		}}),
		"of no networks":             writeDatabase(t, 6),
		"of unknown countries alone": oneLocationDatabase(mmLocation("ZZ", mmDouble(999), mmDouble(2))).encodeBytes(),
		"nowhere by NaN":             oneLocationDatabase(mmLocation("ZZ", mmDouble(math.NaN()), mmDouble(2))).encodeBytes(),
	}
}

// TestLargeAccuracyRadiusUsesTheCountry: a city with an accuracy radius of 500 km or more is replaced by its country,
// at the limit and beyond.
func TestLargeAccuracyRadiusUsesTheCountry(t *testing.T) {
	for radius, want := range map[uint16]string{0: "Lyon", 5: "Lyon", 500: "Lyon", 501: "", 1000: ""} {
		a := openAtlas(t, Config{Databases: []string{saveDatabase(t, writeDatabase(t, 6, databaseNetwork{"81.0.0.0/8", cityData("Lyon", "FR", 45.8, 4.8, radius)}))}})
		f := locateAddr(t, a, "81.1.1.1")
		centre, _ := countryLocation("FR")
		if f.Location.City != want || f.Location.Country != "FR" || (want == "") != (f.Location == centre) {
			t.Errorf("radius %d: %+v", radius, f.Location)
		}
		if want != "" && f.Location.AccuracyKM != float64(radius) {
			t.Errorf("radius %d is returned as %g", radius, f.Location.AccuracyKM)
		}
	}
	far := cityData("Somewhere", "ZZ", 45.8, 4.8, 800) // no country to fall back to
	near := databaseNetwork{"82.0.0.0/8", cityData("Lyon", "FR", 45.8, 4.8, 5)}
	a := openAtlas(t, Config{Databases: []string{saveDatabase(t, writeDatabase(t, 6, databaseNetwork{"81.0.0.0/8", far}, near))}})
	if f := locateAddr(t, a, "81.1.1.1"); f.Source != SourceNone || f.Cell != NoCell {
		t.Errorf("a location without a country is %+v", f)
	}
}
