package fleet

import (
	"path/filepath"
	"strings"

	"github.com/spillway-lb/spillway/internal/spec"
)

// regionData is input of the spec's template.
type regionData struct {
	Site
	ZoneList string
	Gateways []Node
}

// specData is input of the spec's template.
type specData struct {
	*Files
	Zone    string
	Globals []Node
	Regions []regionData
}

// Key is the hash for the spec; the key itself stays in its file.
func (d specData) Key(tenant string) (string, error) {
	k, err := d.Files.ReadTenantKey(tenant)
	if err != nil {
		return "", err
	}
	return spec.HashKey(k), nil
}

// Has reports whether some region belongs to a jurisdiction.
func (d specData) Has(residency string) bool { return d.hasResidency(residency) }

// placeData is one line of places.csv.
type placeData struct {
	Site
	Net     int
	Country string
}

func (p *Files) writeSpec() error {
	d := specData{Files: p, Zone: DNSZone, Globals: p.NodesByRole("global")}
	var places []placeData
	for i, s := range AllSites()[:p.Layout.Regions] {
		zones := map[string]bool{}
		r := regionData{Site: s}
		for _, n := range p.Nodes {
			if n.Region != s.Name {
				continue
			}
			if n.Role == "regional" {
				r.Gateways = append(r.Gateways, n)
			}
			if n.Zone != "" {
				zones[n.Zone] = true
			}
		}
		r.ZoneList = strings.Join(sortedNames(zones), ", ")
		d.Regions = append(d.Regions, r)
		places = append(places, placeData{Site: s, Net: sourceNet + i, Country: s.Country})
	}
	if err := writeOnce(p.placesPath(), "places.csv", places); err != nil {
		return err
	}
	return writeOnce(p.SpecPath(), "spec.yaml", d)
}

func (p *Files) placesPath() string { return filepath.Join(p.Dir, "places.csv") }
