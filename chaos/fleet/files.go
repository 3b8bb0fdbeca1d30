package fleet

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// templates defines a template for each file.
//
//go:embed files.tmpl
var templates string

// renderTemplate fills the template of a file.
func renderTemplate(name string, data any) ([]byte, error) {
	t, err := template.New("").Parse(templates)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeOnce renders a file unless it exists, so that an operator's edits stay.
func writeOnce(path, tmpl string, data any) error {
	if absent, err := isMissing(path); err != nil || !absent {
		return err
	}
	text, err := renderTemplate(tmpl, data)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

func (p *Files) layoutPath() string { return filepath.Join(p.Dir, "layout.json") }

// ReadLayout returns the layout that the directory was written with, and false if it holds none.
func ReadLayout(dir string) (Layout, bool, error) {
	p := &Files{Dir: dir}
	b, err := os.ReadFile(p.layoutPath())
	if os.IsNotExist(err) {
		return Layout{}, false, nil
	}
	if err != nil {
		return Layout{}, false, fmt.Errorf("reading the fleet's layout: %w", err)
	}
	var l Layout
	if err := json.Unmarshal(b, &l); err != nil {
		return Layout{}, false, fmt.Errorf("reading %s: %w", p.layoutPath(), err)
	}
	return l.withDefaults(), true, nil
}

// checkSameLayout refuses to write a second layout into a directory.
func (p *Files) checkSameLayout() error {
	was, found, err := ReadLayout(p.Dir)
	if err != nil || !found {
		return err
	}
	if was != p.Layout.withDefaults() {
		return fmt.Errorf("%s holds a fleet of another layout\n  written with: %s\n  requested:    %s\nhint: use the same flags, another folder, or remove this one", p.Dir, was.flagText(), p.Layout.withDefaults().flagText())
	}
	return nil
}

func (p *Files) writeLayout() error {
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return err
	}
	b, err := json.Marshal(p.Layout)
	if err != nil {
		return err
	}
	return os.WriteFile(p.layoutPath(), append(b, '\n'), 0o644)
}

// nodeData is input of the nodes' templates.
type nodeData struct {
	Node
	Dir, Cert, KeyFile, CA, Socket, Places, Spec string

	Peers, Parents, Workers []Node
	// Advertise is the relay's address that other nodes reach instead of the node's own; empty without relays.
	Advertise string
	// Far reports that the relays put real distances between the global nodes.
	Far           bool
	Seed, Answers uint64
}

func (p *Files) writeNodeConfigs() error {
	for _, n := range p.Nodes {
		id, _ := n.certIdentity()
		certs := id.FilesIn(p.certDir())
		d := nodeData{
			Node: n, Dir: p.StateDir(n),
			Cert: certs.Cert, KeyFile: certs.Key, CA: certs.CA, Socket: n.AdminSocket(), Places: p.placesPath(), Spec: p.SpecPath(),
			Seed: workerSeed(n.ID()), Answers: AnswerSeed, Far: p.Layout.Relays && !p.Layout.NoDelay,
		}
		switch n.Role {
		case "global":
			d.Peers = p.viaRelays("raft", n, p.NodesByRole("global"))
		case "regional":
			d.Parents, d.Advertise = p.viaRelays("uplink", n, p.NodesByRole("global")), p.advertisedAddr("peer", n)
		case "local":
			d.Parents, d.Advertise = p.viaRelays("uplink", n, p.findNodes("regional", n.Region, "")), p.advertisedAddr("http", n)
			d.Workers = p.viaRelays("worker", n, p.findNodes("worker", n.Region, n.Zone))
		}
		if err := writeOnce(p.ConfigPath(n), n.Role+".yaml", d); err != nil {
			return err
		}
	}
	return nil
}

// Served is the model id that a worker serves.
func (d nodeData) Served() string { return strings.ToLower(d.Model) }

// findNodes lists the nodes of a role in a region and, unless it is empty, a zone.
func (p *Files) findNodes(role, region, zone string) []Node {
	var out []Node
	for _, n := range p.NodesByRole(role) {
		if n.Region == region && (zone == "" || n.Zone == zone) {
			out = append(out, n)
		}
	}
	return out
}

// AnswerSeed stands for the weights of a fleet's models: every worker of a model gives the same answer to a prompt.
const AnswerSeed = 1

// workerSeed gives each worker its own random stream, the same on every run.
func workerSeed(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}

// viaRelay returns the node as another one reaches it: with the relay's address in place of its own.
func (p *Files) viaRelay(class string, from, to Node) Node {
	for _, k := range p.links {
		if k.Class == class && k.From == from.ID() && k.To == to.ID() {
			to.Addr = maps.Clone(to.Addr)
			to.Addr[purposeByClass[class]] = k.Listen
			return to
		}
	}
	return to
}

// viaRelays applies viaRelay to several nodes.
func (p *Files) viaRelays(class string, from Node, to []Node) []Node {
	out := make([]Node, len(to))
	for i, n := range to {
		out[i] = p.viaRelay(class, from, n)
	}
	return out
}

// advertisedAddr is the relay's address that a node advertises for a class of links, or empty without relays.
func (p *Files) advertisedAddr(class string, to Node) string {
	for _, k := range p.links {
		if k.Class == class && k.To == to.ID() {
			return k.Listen.String()
		}
	}
	return ""
}

// Links lists the links of the fleet, none without relays.
func (p *Files) Links() []Link { return p.links }
