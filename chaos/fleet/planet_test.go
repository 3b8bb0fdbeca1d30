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

func write(t *testing.T, l Layout) *Planet {
	t.Helper()
	p, err := Write(filepath.Join(t.TempDir(), "planet"), l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSpecIsValidForEveryNumberOfRegions(t *testing.T) {
	for i := range 2 * len(Sites()) {
		l, regions := DefaultLayout(), i/2+1
		l.Regions, l.OneAddress = regions, i%2 == 1
		p := write(t, l)
		text, err := os.ReadFile(p.Spec())
		if err != nil {
			t.Fatal(err)
		}
		s, err := spec.Decode(p.Spec(), text)
		if err != nil {
			t.Fatalf("%d regions:\n%v", regions, err)
		}
		if len(s.Regions) != regions || len(s.Tenants) != len(p.Tenants()) {
			t.Fatalf("%d regions: the spec has %d regions and %d tenants", regions, len(s.Regions), len(s.Tenants))
		}
		for _, name := range p.Tenants() {
			key, err := p.Key(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), key) {
				t.Fatalf("the spec holds the key of %s in the clear", name)
			}
			if who, ok := s.Authenticate(key, time.Now()); !ok || who.Name != name {
				t.Errorf("the key of %s is not accepted", name)
			}
		}
	}
}

func TestSecretsDifferBetweenPlanets(t *testing.T) {
	a, b := write(t, DefaultLayout()), write(t, DefaultLayout())
	ka, _ := a.Key("acme")
	kb, _ := b.Key("acme")
	if ka == "" || ka == kb {
		t.Fatal("two planets share an API key")
	}
	info, err := os.Stat(a.keyPath("acme"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("an API key's file has mode %v, want 0600", info.Mode().Perm())
	}
}

func TestWriteAgainKeepsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	first, err := Write(dir, DefaultLayout())
	if err != nil {
		t.Fatal(err)
	}
	key, _ := first.Key("acme")
	if err := os.WriteFile(first.Spec(), []byte("# edited\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := Write(dir, DefaultLayout())
	if err != nil {
		t.Fatal(err)
	}
	if k, _ := again.Key("acme"); k != key {
		t.Error("writing again made a new key")
	}
	if text, _ := os.ReadFile(again.Spec()); string(text) != "# edited\n" {
		t.Error("writing again overwrote the operator's spec")
	}
	other := DefaultLayout()
	other.Regions = 2
	if _, err := Write(dir, other); err == nil || !strings.Contains(err.Error(), "another shape") {
		t.Errorf("a planet of another shape is accepted in the same folder: %v", err)
	}
}

func TestEveryNodesFileIsValid(t *testing.T) {
	p := write(t, DefaultLayout())
	for _, n := range p.Nodes {
		got, err := config.LoadFile(p.Config(n))
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
		case *config.Worker:
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
