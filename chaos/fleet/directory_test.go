package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/spec"
)

func writeFleet(t *testing.T, l Layout) *Files {
	t.Helper()
	p, err := WriteFiles(filepath.Join(t.TempDir(), "fleet"), l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSpecIsValidForEveryNumberOfRegions(t *testing.T) {
	for i := range 2 * len(AllSites()) {
		l, regions := DefaultLayout(), i/2+1
		l.Regions, l.OneAddress = regions, i%2 == 1
		p := writeFleet(t, l)
		text, err := os.ReadFile(p.SpecPath())
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Decode(p.SpecPath(), text)
		if err != nil {
			t.Fatalf("%d regions:\n%v", regions, err)
		}
		if len(s.Regions) != regions || len(s.Tenants) != len(p.TenantNames()) {
			t.Fatalf("%d regions: the spec has %d regions and %d tenants", regions, len(s.Regions), len(s.Tenants))
		}
		for _, name := range p.TenantNames() {
			key, err := p.ReadTenantKey(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), key) {
				t.Fatalf("the spec holds the key of %s in the clear", name)
			}
			if who, ok := s.AuthenticateKey(key, time.Now()); !ok || who.Name != name {
				t.Errorf("the key of %s is not accepted", name)
			}
		}
	}
}

func TestSecretsDifferBetweenFleets(t *testing.T) {
	a, b := writeFleet(t, DefaultLayout()), writeFleet(t, DefaultLayout())
	ka, _ := a.ReadTenantKey("acme")
	kb, _ := b.ReadTenantKey("acme")
	if ka == "" || ka == kb {
		t.Fatal("two fleets share an API key")
	}
	info, err := os.Stat(a.keyPath("acme"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("an API key's file has mode %v, want 0600", info.Mode().Perm())
	}
}

func TestWriteFleetKeepsExistingFiles(t *testing.T) {
	dir := t.TempDir()
	first, err := WriteFiles(dir, DefaultLayout())
	if err != nil {
		t.Fatal(err)
	}
	key, _ := first.ReadTenantKey("acme")
	if err := os.WriteFile(first.SpecPath(), []byte("# edited\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := WriteFiles(dir, DefaultLayout())
	if err != nil {
		t.Fatal(err)
	}
	if k, _ := again.ReadTenantKey("acme"); k != key {
		t.Error("writing again made a new key")
	}
	if text, _ := os.ReadFile(again.SpecPath()); string(text) != "# edited\n" {
		t.Error("writing again overwrote the operator's spec")
	}
	other := DefaultLayout()
	other.Regions = 2
	_, err = WriteFiles(dir, other)
	if err == nil || !strings.Contains(err.Error(), "another layout") {
		t.Fatalf("a different layout is accepted in the same directory: %v", err)
	}
	for _, flags := range []string{
		"written with: --globals 3 --regions 3 --gateways 1 --zones 2 --locals 1 --workers 4\n",
		"requested:    --globals 3 --regions 2 --gateways 1 --zones 2 --locals 1 --workers 4\n",
	} {
		if !strings.Contains(err.Error(), flags) {
			t.Errorf("the error lacks %q:\n%v", flags, err)
		}
	}
}

func TestEveryNodeConfigIsValid(t *testing.T) {
	p := writeFleet(t, DefaultLayout())
	for _, n := range p.Nodes {
		got, err := config.LoadFile(p.ConfigPath(n))
		if err != nil {
			t.Fatalf("%s:\n%v", n.ID(), err)
		}
		var role string
		switch f := got.(type) {
		case *config.Global:
			role = f.Role
		case *config.Regional:
			role = f.Role
		case *config.Local:
			role = f.Role
		case *config.SimulatedWorker:
			role = f.Role
		}
		if role != n.Role {
			t.Errorf("%s is a %q, want %q", n.ID(), role, n.Role)
		}
	}
	places, err := os.ReadFile(p.placesPath())
	if err != nil {
		t.Fatal(err)
	}
	got, err := geo.DecodeOverrides("places.csv", string(places))
	if err != nil || len(got) != p.Layout.Regions {
		t.Fatalf("places.csv has %d places (%v), want one for each region", len(got), err)
	}
}
