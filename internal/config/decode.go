package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Error is every mistake of one file with its place, in print and as JSON.
type Error = strict.Error

// Problem is one mistake by the path of the value that holds it.
type Problem = strict.Problem

// file is what every role's config can do.
type file interface {
	// rebase makes relative paths count from base.
	rebase(base string)
	// validate returns every mistake.
	validate() []Problem
	// complete fills what follows from other keys.
	complete()
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
	cfg.rebase(filepath.Dir(name))
	doc.Report(cfg.validate())
	if err := doc.Err(); err != nil {
		return nil, err
	}
	cfg.complete()
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

// RoleOf returns the role that a config file's text names, be there such a role or not, or "" where it names none, as
// in a spec.
func RoleOf(text []byte) string {
	doc, err := strict.Parse("", text)
	if err != nil {
		return ""
	}
	role, _ := doc.Text("role")
	return role
}

// Encode writes a *Global, *Regional, *Local or *Worker as YAML, leaving out what is zero.
func Encode(cfg any) []byte { return strict.Encode(cfg) }

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

// rebase also fills in the default, because its length is judged like any other's.
func (a *Admin) rebase(base, dir string) {
	rebase(base, &a.Socket)
	if a.Socket == "" && dir != "" {
		a.Socket = filepath.Join(dir, "admin.sock")
	}
}

func (c *Global) rebase(base string) {
	rebase(base, &c.Dir, &c.Spec)
	rebase(base, &c.DNS.TLS.Cert, &c.DNS.TLS.Key)
	c.TLS.rebase(base)
	c.Geo.rebase(base)
	c.Admin.rebase(base, c.Dir)
}

func (c *Regional) rebase(base string) {
	rebase(base, &c.Dir, &c.HTTP.TLSCert, &c.HTTP.TLSKey, &c.Spec)
	c.TLS.rebase(base)
	c.Geo.rebase(base)
	c.Admin.rebase(base, c.Dir)
}

func (c *Local) rebase(base string) {
	rebase(base, &c.Dir, &c.WorkersFile, &c.Spec, &c.Registration.TokenFile)
	RebaseWorkers(base, c.Workers)
	for i := range c.Discover.DNS {
		n := &c.Discover.DNS[i]
		a := n.Access()
		a.rebase(base)
		n.APIKeyFile, n.HeaderFiles, n.TLS = a.APIKeyFile, a.HeaderFiles, a.TLS
	}
	a := c.Registration.Access()
	a.rebase(base)
	c.Registration.APIKeyFile, c.Registration.HeaderFiles, c.Registration.TLS = a.APIKeyFile, a.HeaderFiles, a.TLS
	c.TLS.rebase(base)
	c.Admin.rebase(base, c.Dir)
}

func (c *Worker) rebase(base string) {
	rebase(base, &c.APIKeyFile, &c.Register.TokenFile, &c.Register.CA)
}

func (c *Global) complete() { advertise(&c.Raft.Advertise, c.Raft.Listen) }

func (c *Regional) complete() { advertise(&c.Peer.Advertise, c.Peer.Listen) }

func (c *Local) complete() { advertise(&c.HTTP.Advertise, c.HTTP.Listen) }

func (c *Worker) complete() {
	if c.ServedAs == "" {
		c.ServedAs = c.Model
	}
}

// advertise falls back to the address that is listened on, where that is one that others could reach.
func advertise(to *string, listen string) {
	if *to == "" && !everywhere(listen) {
		*to = listen
	}
}
