package fleet

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/spillway-lb/spillway/internal/spec"
)

//go:embed files/*.tmpl
var templates embed.FS

// render fills one template.
func render(name string, data any) ([]byte, error) {
	t, err := template.New(name).ParseFS(templates, "files/"+name)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeOnce renders a file unless it is there: what an operator edited stays.
func writeOnce(path, tmpl string, data any) error {
	if absent, err := missing(path); err != nil || !absent {
		return err
	}
	text, err := render(tmpl, data)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

func (p *Planet) layoutPath() string { return filepath.Join(p.Dir, "layout.json") }

// sameLayout refuses to mix two planets in one folder.
func (p *Planet) sameLayout() error {
	b, err := os.ReadFile(p.layoutPath())
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the planet's layout: %w", err)
	}
	var was Layout
	if err := json.Unmarshal(b, &was); err != nil {
		return fmt.Errorf("reading %s: %w", p.layoutPath(), err)
	}
	if was.whole() != p.Layout.whole() {
		return fmt.Errorf("%s holds a planet of another shape: %+v, asked for %+v\nhint: use the same flags, another --dir, or remove the folder", p.Dir, was, p.Layout)
	}
	return nil
}

func (p *Planet) writeLayout() error {
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return err
	}
	b, err := json.Marshal(p.Layout)
	if err != nil {
		return err
	}
	return os.WriteFile(p.layoutPath(), append(b, '\n'), 0o644)
}

// region is what the spec's template reads.
type region struct {
	Site
	ZoneList string
	Gateways []Node
}

// specData is what the spec's template reads.
type specData struct {
	*Planet
	Zone    string
	Globals []Node
	Regions []region
}

// Key is the hash that the spec may hold; the key itself stays in its file.
func (d specData) Key(tenant string) (string, error) {
	k, err := d.Planet.Key(tenant)
	if err != nil {
		return "", err
	}
	return spec.HashKey(k), nil
}

// Has reports whether some region counts as a jurisdiction.
func (d specData) Has(residency string) bool { return d.has(residency) }

// place is one line of places.csv.
type place struct {
	Site
	Net     int
	Country string
}

func (p *Planet) writeSpec() error {
	d := specData{Planet: p, Zone: Zone, Globals: p.Of("global")}
	var places []place
	for i, s := range Sites()[:p.Layout.Regions] {
		zones := map[string]bool{}
		r := region{Site: s}
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
		places = append(places, place{Site: s, Net: sourceNet + i, Country: s.Country})
	}
	if err := writeOnce(p.placesPath(), "places.csv.tmpl", places); err != nil {
		return err
	}
	return writeOnce(p.Spec(), "spec.yaml.tmpl", d)
}

func (p *Planet) placesPath() string { return filepath.Join(p.Dir, "places.csv") }

// nodeData is what the nodes' templates read.
type nodeData struct {
	Node
	Dir, Cert, KeyFile, CA, Socket, Places, Spec string

	Peers, Parents, Workers []Node
	Seed, Answers           uint64
}

func (p *Planet) writeNodes() error {
	for _, n := range p.Nodes {
		id, _ := n.identity()
		certs := id.FilesIn(p.certDir())
		d := nodeData{
			Node: n, Dir: filepath.Join(p.Dir, "state", n.ID()),
			Cert: certs.Cert, KeyFile: certs.Key, CA: certs.CA, Socket: n.Socket(), Places: p.placesPath(), Spec: p.Spec(),
			Seed: seed(n.ID()), Answers: Answers,
		}
		switch n.Role {
		case "global":
			d.Peers = p.Of("global")
		case "regional":
			d.Parents = p.Of("global")
		case "local":
			d.Parents = p.where("regional", n.Region, "")
			d.Workers = p.where("worker", n.Region, n.Zone)
		}
		if err := writeOnce(p.Config(n), n.Role+".yaml.tmpl", d); err != nil {
			return err
		}
	}
	return nil
}

// Served is the model id that a worker answers to.
func (d nodeData) Served() string { return strings.ToLower(d.Model) }

// where lists the nodes of a role in a region and, unless it is empty, a zone.
func (p *Planet) where(role, region, zone string) []Node {
	var out []Node
	for _, n := range p.Of(role) {
		if n.Region == region && (zone == "" || n.Zone == zone) {
			out = append(out, n)
		}
	}
	return out
}

// Answers stands for the weights of a planet's models: every worker of a model gives the same answer to one prompt.
const Answers = 1

// seed gives each worker a stream of its own that is the same on every run.
func seed(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}
