package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Error is every mistake of one file with its place, in print and as JSON.
type Error = strict.Error

// Problem is one mistake by the path of the value that holds it.
type Problem = strict.Problem

// file is what every role's config can do.
type file interface {
	// complete fills what follows from other keys. Paths count from base.
	complete(base string)
	// validate returns every mistake.
	validate() []Problem
}

// blank returns an empty config of the role, or nil.
func blank(role string) file {
	switch role {
	case RoleGlobal:
		return &Global{}
	case RoleRegional:
		return &Regional{}
	case RoleLocal:
		return &Local{}
	case RoleWorker:
		return &Worker{}
	}
	return nil
}

// Decode reads a config file's text: strictly, defaults applied, validated. It returns a *Global, *Regional, *Local or
// *Worker, by the key role. Name is the file's path: relative paths in the file count from its folder. An error is
// always an *Error that holds every mistake, by line.
func Decode(name string, text []byte) (any, error) {
	doc, err := strict.Parse(name, text)
	if err != nil {
		return nil, err
	}
	role, _ := doc.Text("role")
	cfg := blank(role)
	if cfg == nil {
		doc.Report([]Problem{noRole(role)})
		return nil, doc.Err()
	}
	doc.Decode(cfg)
	doc.Report(cfg.validate())
	if err := doc.Err(); err != nil {
		return nil, err
	}
	cfg.complete(filepath.Dir(name))
	return cfg, nil
}

func noRole(role string) Problem {
	reason := fmt.Sprintf("unknown role %q", role)
	hint := strict.Suggest(role, Roles(), "roles")
	if role == "" {
		reason, hint = "the file does not say which role it configures", "write role: "+strings.Join(Roles(), ", role: ")+", as its first line"
	}
	return Problem{Path: "$.role", Reason: reason, Hint: hint}
}

// RoleOf returns the role that a config file's text names, or "" where it names none that exists, as in a spec.
func RoleOf(text []byte) string {
	doc, err := strict.Parse("", text)
	if err != nil {
		return ""
	}
	if role, _ := doc.Text("role"); slices.Contains(Roles(), role) {
		return role
	}
	return ""
}

// Encode writes a *Global, *Regional, *Local or *Worker as YAML, leaving out what is zero.
func Encode(cfg any) []byte { return strict.Encode(cfg) }

// workersFile is the shape of the file that Local.WorkersFile names.
type workersFile struct {
	// Workers are the zone's inference servers.
	Workers []WorkerEntry `yaml:"workers"`
}

// DecodeWorkers reads the text of a workers file. An error is always an *Error.
func DecodeWorkers(name string, text []byte) ([]WorkerEntry, error) {
	doc, err := strict.Parse(name, text)
	if err != nil {
		return nil, err
	}
	var f workersFile
	doc.Decode(&f)
	var c checker
	c.workers(f.Workers)
	doc.Report(c.found)
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return f.Workers, nil
}

// rebase makes relative paths count from base.
func rebase(base string, paths ...*string) {
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(base, *p)
		}
	}
}

func (t *TLS) rebase(base string) { rebase(base, &t.Cert, &t.Key, &t.CA) }

func (g *Geo) rebase(base string) {
	rebase(base, &g.Overrides)
	for i := range g.Databases {
		rebase(base, &g.Databases[i])
	}
}

func (a *Admin) complete(base, dir string) {
	rebase(base, &a.Socket)
	if a.Socket == "" && dir != "" {
		a.Socket = filepath.Join(dir, "admin.sock")
	}
}

func (c *Global) complete(base string) {
	rebase(base, &c.Dir, &c.Spec)
	c.TLS.rebase(base)
	c.Geo.rebase(base)
	c.Admin.complete(base, c.Dir)
	fallback(&c.Raft.Advertise, c.Raft.Listen)
}

func (c *Regional) complete(base string) {
	rebase(base, &c.Dir, &c.HTTP.TLSCert, &c.HTTP.TLSKey)
	c.TLS.rebase(base)
	c.Geo.rebase(base)
	c.Admin.complete(base, c.Dir)
	fallback(&c.Peer.Advertise, c.Peer.Listen)
}

func (c *Local) complete(base string) {
	rebase(base, &c.Dir, &c.WorkersFile)
	c.TLS.rebase(base)
	c.Admin.complete(base, c.Dir)
	fallback(&c.HTTP.Advertise, c.HTTP.Listen)
}

func (c *Worker) complete(string) {
	if len(c.ServedAs) == 0 {
		c.ServedAs = []string{c.Model}
	}
}

func fallback(s *string, to string) {
	if *s == "" {
		*s = to
	}
}
