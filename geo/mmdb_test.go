package geo

import (
	"bytes"
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
