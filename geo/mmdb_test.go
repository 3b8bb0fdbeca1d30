package geo

import (
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"
)

// databaseNetwork is one line of a test database.
type databaseNetwork struct {
	prefix string
	data   mmdbtype.Map
}

func cityData(name, country string, lat, lon float64, radius uint16) mmdbtype.Map {
	return mmdbtype.Map{
		"city":      mmdbtype.Map{"names": mmdbtype.Map{"en": mmdbtype.String(name)}},
		"country":   mmdbtype.Map{"iso_code": mmdbtype.String(country)},
		"continent": mmdbtype.Map{"code": mmdbtype.String("XX")},
		"location": mmdbtype.Map{
			"latitude": mmdbtype.Float64(lat), "longitude": mmdbtype.Float64(lon), "accuracy_radius": mmdbtype.Uint16(radius),
		},
	}
}

func countryOnly(code string) mmdbtype.Map {
	return mmdbtype.Map{"country": mmdbtype.Map{"iso_code": mmdbtype.String(code)}}
}

func flatData(name, country string, lat, lon float64) mmdbtype.Map {
	return mmdbtype.Map{
		"city": mmdbtype.String(name), "country_code": mmdbtype.String(country),
		"latitude": mmdbtype.Float64(lat), "longitude": mmdbtype.Float64(lon),
	}
}

// writeDatabase creates a database and returns its bytes.
func writeDatabase(t testing.TB, version int, networks ...databaseNetwork) []byte {
	t.Helper()
	w, err := mmdbwriter.New(mmdbwriter.Options{
		IPVersion: version, DatabaseType: "Test-City", RecordSize: 24,
		IncludeReservedNetworks: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range networks {
		_, p, err := net.ParseCIDR(n.prefix)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Insert(p, n.data); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// saveDatabase writes a database to a file.
func saveDatabase(t testing.TB, body []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.mmdb")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCityDatabase(t *testing.T) {
	path := saveDatabase(t, writeDatabase(t, 6,
		databaseNetwork{"81.2.69.0/24", cityData("London", "GB", 51.5, -0.1, 20)},
		databaseNetwork{"81.2.70.0/25", cityData("Leeds", "GB", 53.8, -1.5, 50)},
		databaseNetwork{"90.0.0.0/8", cityData("Somewhere", "FR", 44, 3, 501)},
		databaseNetwork{"91.0.0.0/9", countryOnly("JP")},
		databaseNetwork{"92.0.0.0/16", mmdbtype.Map{"registered_country": mmdbtype.Map{"iso_code": mmdbtype.String("BR")}}},
		databaseNetwork{"93.0.0.0/16", mmdbtype.Map{"traits": mmdbtype.Map{"is_anycast": mmdbtype.Bool(true)}}},
		databaseNetwork{"94.0.0.0/16", cityData("Off the globe", "ZZ", 1000, 3, 1)},
		databaseNetwork{"10.0.0.0/8", cityData("Nobody", "US", 1, 2, 1)},
		databaseNetwork{"2a00:1:2::/48", cityData("Oslo", "NO", 59.9, 10.7, 10)},
	))
	a := openAtlas(t, Config{Databases: []string{path}})
	checkLocated(t, a, "81.2.69.160", "London", SourceDatabase, "81.2.69.0/24", 24)
	checkLocated(t, a, "81.2.70.1", "Leeds", SourceDatabase, "81.2.70.0/25", 25)
	checkLocated(t, a, "81.2.70.129", "", SourceNone, "81.2.70.128/25", 25) // the empty node next to Leeds, and no wider
	checkLocated(t, a, "81.2.71.1", "", SourceNone, "81.2.71.0/24", 24)
	checkLocated(t, a, "90.1.2.3", "", SourceDatabase, "90.0.0.0/8", 8)
	checkLocated(t, a, "10.1.1.1", "", SourceSpecial, "10.0.0.0/8", 8)
	checkLocated(t, a, "93.0.0.1", "", SourceNone, "93.0.0.0/8", 8)
	checkLocated(t, a, "94.0.0.1", "", SourceNone, "94.0.0.0/7", 7)
	checkLocated(t, a, "2a00:1:2:3::4", "Oslo", SourceDatabase, "2a00:1:2::/48", 48)
	checkLocated(t, a, "2a00:1:3::", "", SourceNone, "2a00:1:3::/48", 48)
	checkLocated(t, a, "2002:5102:45a0::1", "London", SourceDatabase, "81.2.69.0/24", 40)
	for addr, country := range map[string]string{"90.1.2.3": "FR", "91.1.1.1": "JP", "92.0.1.1": "BR"} {
		f := locateAddr(t, a, addr)
		if want, _ := countryLocation(country); f.Location != want {
			t.Errorf("%s is at %v, want the middle of %s", addr, f.Location, country)
		}
	}
}

func TestDatabaseOfIPv4Alone(t *testing.T) {
	a := openAtlas(t, Config{Databases: []string{saveDatabase(t, writeDatabase(t, 4, databaseNetwork{"81.2.69.0/24", cityData("London", "GB", 51.5, -0.1, 20)}))}})
	checkLocated(t, a, "81.2.69.160", "London", SourceDatabase, "81.2.69.0/24", 24)
	checkLocated(t, a, "81.2.68.1", "", SourceNone, "81.2.68.0/24", 24)
	checkLocated(t, a, "2a00::1", "", SourceNone, "2800::/5", 5)
}

func TestFlatSchema(t *testing.T) {
	a := openAtlas(t, Config{Databases: []string{saveDatabase(t, writeDatabase(t, 6,
		databaseNetwork{"81.2.69.0/24", flatData("London", "GB", 51.5, -0.1)},
		databaseNetwork{"91.0.0.0/8", mmdbtype.Map{"country_code": mmdbtype.String("JP")}}))}})
	checkLocated(t, a, "81.2.69.160", "London", SourceDatabase, "81.2.69.0/24", 24)
	if f := locateAddr(t, a, "91.1.1.1"); f.Location.Country != "JP" || f.Location.Continent != "AS" {
		t.Errorf("place %v", f.Location)
	}
}

func TestFirstDatabaseWithALocationWins(t *testing.T) {
	cities := saveDatabase(t, writeDatabase(t, 6, databaseNetwork{"81.2.69.0/25", cityData("London", "GB", 51.5, -0.1, 20)}))
	lands := saveDatabase(t, writeDatabase(t, 6, databaseNetwork{"81.0.0.0/8", countryOnly("DE")}))
	a := openAtlas(t, Config{Databases: []string{cities, lands}})
	checkLocated(t, a, "81.2.69.1", "London", SourceDatabase, "81.2.69.0/25", 25)
	if f := locateAddr(t, a, "81.2.69.129"); f.Location.Country != "DE" || f.Prefix.String() != "81.2.69.128/25" {
		t.Errorf("the rest is %+v", f)
	}
	b := openAtlas(t, Config{Databases: []string{lands, cities}})
	if f := locateAddr(t, b, "81.2.69.1"); f.Location.Country != "DE" || f.Prefix.String() != "81.0.0.0/8" {
		t.Errorf("other way round: %+v", f)
	}
}

// TestCorruptDatabases corrupts each byte of a database in turn: it opens or returns an error, and never panics.
func TestCorruptDatabases(t *testing.T) {
	body := writeDatabase(t, 6, databaseNetwork{"81.2.69.0/24", cityData("London", "GB", 51.5, -0.1, 20)},
		databaseNetwork{"2a00:1:2::/48", flatData("Oslo", "NO", 59.9, 10.7)})
	step := max(len(body)/600, 1)
	for i := 0; i < len(body); i += step {
		for _, v := range []byte{0, 0xff, body[i] ^ 0x55} {
			tryRead(t, append(append(bytes.Clone(body[:i]), v), body[i+1:]...))
		}
	}
	for i := 0; i < len(body); i += 7 * step {
		tryRead(t, body[:i])
	}
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("not a database"), "half": body[:len(body)/2]} {
		if _, err := OpenAtlas(Config{Databases: []string{saveDatabase(t, b)}}); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
	expectError(t, Config{Databases: []string{"/nowhere/x.mmdb"}}, "/nowhere/x.mmdb")
}

func tryRead(t testing.TB, body []byte) {
	t.Helper()
	b := newAtlasBuilder()
	_ = scanDatabase("test.mmdb", body, b.addFuncFor(SourceDatabase))
}

// FuzzDatabase checks that no file makes the reader panic or loop.
func FuzzDatabase(f *testing.F) {
	f.Add(writeDatabase(f, 6, databaseNetwork{"81.2.69.0/24", cityData("London", "GB", 51.5, -0.1, 20)}))
	f.Add(writeDatabase(f, 4, databaseNetwork{"81.2.69.0/24", flatData("London", "GB", 51.5, -0.1)}))
	f.Add([]byte("not a database"))
	f.Fuzz(func(t *testing.T, body []byte) { tryRead(t, body) })
}

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
