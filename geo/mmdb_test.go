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

// network is one line of a test database.
type network struct {
	prefix string
	data   mmdbtype.Map
}

func city(name, country string, lat, lon float64, radius uint16) mmdbtype.Map {
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

func flat(name, country string, lat, lon float64) mmdbtype.Map {
	return mmdbtype.Map{
		"city": mmdbtype.String(name), "country_code": mmdbtype.String(country),
		"latitude": mmdbtype.Float64(lat), "longitude": mmdbtype.Float64(lon),
	}
}

// write makes a database and returns its bytes.
func write(t testing.TB, version int, networks ...network) []byte {
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

// save puts a database into a file.
func save(t testing.TB, body []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.mmdb")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDatabase(t *testing.T) {
	path := save(t, write(t, 6,
		network{"81.2.69.0/24", city("London", "GB", 51.5, -0.1, 20)},
		network{"81.2.70.0/25", city("Leeds", "GB", 53.8, -1.5, 50)},
		network{"90.0.0.0/8", city("Somewhere", "FR", 44, 3, 501)},
		network{"91.0.0.0/9", countryOnly("JP")},
		network{"92.0.0.0/16", mmdbtype.Map{"registered_country": mmdbtype.Map{"iso_code": mmdbtype.String("BR")}}},
		network{"93.0.0.0/16", mmdbtype.Map{"traits": mmdbtype.Map{"is_anycast": mmdbtype.Bool(true)}}},
		network{"94.0.0.0/16", city("Off the globe", "ZZ", 1000, 3, 1)},
		network{"10.0.0.0/8", city("Nobody", "US", 1, 2, 1)},
		network{"2a00:1:2::/48", city("Oslo", "NO", 59.9, 10.7, 10)},
	))
	a := open(t, Config{Databases: []string{path}})
	expect(t, a, "81.2.69.160", "London", SourceDatabase, "81.2.69.0/24", 24)
	expect(t, a, "81.2.70.1", "Leeds", SourceDatabase, "81.2.70.0/25", 25)
	expect(t, a, "81.2.70.129", "", SourceNone, "81.2.70.128/25", 25) // the empty node beside Leeds, and no wider
	expect(t, a, "81.2.71.1", "", SourceNone, "81.2.71.0/24", 24)
	expect(t, a, "90.1.2.3", "", SourceDatabase, "90.0.0.0/8", 8)
	expect(t, a, "10.1.1.1", "", SourceSpecial, "10.0.0.0/8", 8)
	expect(t, a, "93.0.0.1", "", SourceNone, "93.0.0.0/8", 8)
	expect(t, a, "94.0.0.1", "", SourceNone, "94.0.0.0/7", 7)
	expect(t, a, "2a00:1:2:3::4", "Oslo", SourceDatabase, "2a00:1:2::/48", 48)
	expect(t, a, "2a00:1:3::", "", SourceNone, "2a00:1:3::/48", 48)
	expect(t, a, "2002:5102:45a0::1", "London", SourceDatabase, "81.2.69.0/24", 40)
	for addr, country := range map[string]string{"90.1.2.3": "FR", "91.1.1.1": "JP", "92.0.1.1": "BR"} {
		f := at(t, a, addr)
		if want, _ := countryPlace(country); f.Place != want {
			t.Errorf("%s is at %v, want the middle of %s", addr, f.Place, country)
		}
	}
}

func TestDatabaseOfIPv4Alone(t *testing.T) {
	a := open(t, Config{Databases: []string{save(t, write(t, 4, network{"81.2.69.0/24", city("London", "GB", 51.5, -0.1, 20)}))}})
	expect(t, a, "81.2.69.160", "London", SourceDatabase, "81.2.69.0/24", 24)
	expect(t, a, "81.2.68.1", "", SourceNone, "81.2.68.0/24", 24)
	expect(t, a, "2a00::1", "", SourceNone, "2800::/5", 5)
}

func TestFlatSchema(t *testing.T) {
	a := open(t, Config{Databases: []string{save(t, write(t, 6,
		network{"81.2.69.0/24", flat("London", "GB", 51.5, -0.1)},
		network{"91.0.0.0/8", mmdbtype.Map{"country_code": mmdbtype.String("JP")}}))}})
	expect(t, a, "81.2.69.160", "London", SourceDatabase, "81.2.69.0/24", 24)
	if f := at(t, a, "91.1.1.1"); f.Place.Country != "JP" || f.Place.Continent != "AS" {
		t.Errorf("place %v", f.Place)
	}
}

func TestFirstDatabaseThatPlacesWins(t *testing.T) {
	cities := save(t, write(t, 6, network{"81.2.69.0/25", city("London", "GB", 51.5, -0.1, 20)}))
	lands := save(t, write(t, 6, network{"81.0.0.0/8", countryOnly("DE")}))
	a := open(t, Config{Databases: []string{cities, lands}})
	expect(t, a, "81.2.69.1", "London", SourceDatabase, "81.2.69.0/25", 25)
	if f := at(t, a, "81.2.69.129"); f.Place.Country != "DE" || f.Prefix.String() != "81.2.69.128/25" {
		t.Errorf("the rest is %+v", f)
	}
	b := open(t, Config{Databases: []string{lands, cities}})
	if f := at(t, b, "81.2.69.1"); f.Place.Country != "DE" || f.Prefix.String() != "81.0.0.0/8" {
		t.Errorf("other way round: %+v", f)
	}
}

// TestCorruptDatabases breaks a database at each byte in turn: it opens or it does not, and never panics.
func TestCorruptDatabases(t *testing.T) {
	body := write(t, 6, network{"81.2.69.0/24", city("London", "GB", 51.5, -0.1, 20)},
		network{"2a00:1:2::/48", flat("Oslo", "NO", 59.9, 10.7)})
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
		if _, err := Open(Config{Databases: []string{save(t, b)}}); err == nil {
			t.Errorf("%s was opened", name)
		}
	}
	expectError(t, Config{Databases: []string{"/nowhere/x.mmdb"}}, "/nowhere/x.mmdb")
}

func tryRead(t testing.TB, body []byte) {
	t.Helper()
	b := newBuilder()
	_ = scan("test.mmdb", body, b.addFrom(SourceDatabase))
}

func TestLiveKeepsAGoodOne(t *testing.T) {
	good := write(t, 6, network{"81.2.69.0/24", city("London", "GB", 51.5, -0.1, 20)})
	path := save(t, good)
	l, err := NewLive(Config{Databases: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, l.Atlas(), "81.2.69.1", "London", SourceDatabase, "81.2.69.0/24", 24)
	replace := func(body []byte) error {
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		return l.Reload()
	}
	if err := replace(good[:len(good)/2]); err == nil {
		t.Error("half a database was taken")
	}
	expect(t, l.Atlas(), "81.2.69.1", "London", SourceDatabase, "81.2.69.0/24", 24)
	if err := replace(write(t, 6, network{"81.2.69.0/24", city("Paris", "FR", 48.9, 2.3, 20)})); err != nil {
		t.Fatal(err)
	}
	expect(t, l.Atlas(), "81.2.69.1", "Paris", SourceDatabase, "81.2.69.0/24", 24)
	if _, err := NewLive(Config{Databases: []string{path + ".none"}}); err == nil {
		t.Error("a missing database was opened")
	}
}

// FuzzDatabase holds that no file makes the reader panic or run away.
func FuzzDatabase(f *testing.F) {
	f.Add(write(f, 6, network{"81.2.69.0/24", city("London", "GB", 51.5, -0.1, 20)}))
	f.Add(write(f, 4, network{"81.2.69.0/24", flat("London", "GB", 51.5, -0.1)}))
	f.Add([]byte("not a database"))
	f.Fuzz(func(t *testing.T, body []byte) { tryRead(t, body) })
}
