package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Error holds all mistakes of one file with their positions, as text and as JSON.
type Error = strict.Error

// Problem is one mistake, with the path of its value.
type Problem = strict.Problem

// roleConfig is the config of any role.
type roleConfig interface {
	// rebasePaths makes relative paths relative to base.
	rebasePaths(base string)
	// findProblems returns every mistake.
	findProblems() []Problem
	// fillDerivedKeys fills in keys derived from others.
	fillDerivedKeys()
}

// newRoleConfig returns an empty config of the role, or nil.
func newRoleConfig(role string) roleConfig {
	switch role {
	case RoleGlobal:
		return &Global{}
	case RoleRegional:
		return &Regional{}
	case RoleLocal:
		return &Local{}
	case RoleWorker:
		return &SimulatedWorker{}
	}
	return nil
}

// Decode parses the text of a config file: strictly, with defaults applied, validated. It returns a *Global,
// *Regional, *Local or *SimulatedWorker, by the key role. name is the path of the file: relative paths in it
// are relative to its folder. An error is always an *Error with every mistake by line.
func Decode(name string, text []byte) (any, error) {
	doc, err := strict.Parse(name, text)
	if err != nil {
		return nil, err
	}
	role, _ := doc.TopLevelText("role")
	cfg := newRoleConfig(role)
	if cfg == nil {
		doc.ReportProblems([]Problem{unknownRoleProblem(role)})
		return nil, doc.Err()
	}
	doc.Decode(cfg)
	cfg.rebasePaths(filepath.Dir(name))
	doc.ReportProblems(cfg.findProblems())
	if err := doc.Err(); err != nil {
		return nil, err
	}
	cfg.fillDerivedKeys()
	return cfg, nil
}

func unknownRoleProblem(role string) Problem {
	reason := fmt.Sprintf("unknown role %q", role)
	hint := strict.SuggestName(role, RoleNames(), "roles")
	if role == "" {
		reason, hint = "the file does not say which role it configures", "write role: "+strings.Join(RoleNames(), ", role: ")+", as its first line"
	}
	return Problem{Path: "$.role", Reason: reason, Hint: hint}
}

// RoleOf returns the role named in the text of a config file, valid or not, or "" if there is none, as in a
// spec.
func RoleOf(text []byte) string {
	doc, err := strict.Parse("", text)
	if err != nil {
		return ""
	}
	role, _ := doc.TopLevelText("role")
	return role
}

// Encode writes a *Global, *Regional, *Local or *SimulatedWorker as YAML, omitting zero values.
func Encode(cfg any) []byte { return strict.Encode(cfg) }

// rebaseFiles makes relative paths relative to base.
func rebaseFiles(base string, paths ...*string) {
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(base, *p)
		}
	}
}

func (t *TLSFiles) rebasePaths(base string) { rebaseFiles(base, &t.Cert, &t.Key, &t.CA) }

func (g *Geo) rebasePaths(base string) {
	rebaseFiles(base, &g.Overrides)
	for i := range g.Databases {
		rebaseFiles(base, &g.Databases[i])
	}
}

// rebasePaths also fills in the default, because its length is checked like any other's.
func (a *Admin) rebasePaths(base, dir string) {
	rebaseFiles(base, &a.Socket)
	if a.Socket == "" && dir != "" {
		a.Socket = filepath.Join(dir, "admin.sock")
	}
}

func (c *Global) rebasePaths(base string) {
	rebaseFiles(base, &c.Dir, &c.Spec)
	rebaseFiles(base, &c.DNS.TLS.Cert, &c.DNS.TLS.Key)
	c.TLS.rebasePaths(base)
	c.Geo.rebasePaths(base)
	c.Tracing.rebasePaths(base)
	c.Admin.rebasePaths(base, c.Dir)
	for i := range c.Notifications {
		rebaseFiles(base, &c.Notifications[i].SecretFile)
	}
}

func (c *Regional) rebasePaths(base string) {
	rebaseFiles(base, &c.Dir, &c.HTTP.TLSCert, &c.HTTP.TLSKey, &c.Spec)
	rebaseAccessLog(base, &c.AccessLog)
	c.Tracing.rebasePaths(base)
	rebaseFiles(base, &c.Decisions.File)
	c.TLS.rebasePaths(base)
	c.Geo.rebasePaths(base)
	c.Admin.rebasePaths(base, c.Dir)
}

func (c *Local) rebasePaths(base string) {
	rebaseFiles(base, &c.Dir, &c.WorkersFile, &c.Spec, &c.Registration.TokenFile)
	rebaseFiles(base, &c.EndpointPicker.TLS.Cert, &c.EndpointPicker.TLS.Key, &c.EndpointPicker.TLS.ClientCA)
	rebaseAccessLog(base, &c.AccessLog)
	c.Tracing.rebasePaths(base)
	rebaseFiles(base, &c.Decisions.File)
	RebaseWorkers(base, c.Workers)
	for i := range c.Discover.DNS {
		n := &c.Discover.DNS[i]
		a := n.Access()
		a.rebasePaths(base)
		n.APIKeyFile, n.HeaderFiles, n.TLS = a.APIKeyFile, a.HeaderFiles, a.TLS
	}
	for i := range c.Discover.Kubernetes {
		n := &c.Discover.Kubernetes[i]
		a := n.Access()
		a.rebasePaths(base)
		n.APIKeyFile, n.HeaderFiles, n.TLS = a.APIKeyFile, a.HeaderFiles, a.TLS
		rebaseFiles(base, &n.Kubeconfig)
	}
	a := c.Registration.Access()
	a.rebasePaths(base)
	c.Registration.APIKeyFile, c.Registration.HeaderFiles, c.Registration.TLS = a.APIKeyFile, a.HeaderFiles, a.TLS
	c.TLS.rebasePaths(base)
	c.Admin.rebasePaths(base, c.Dir)
}

func rebaseAccessLog(base string, a *AccessLog) {
	if a.Path != "-" {
		rebaseFiles(base, &a.Path)
	}
}

func (c *SimulatedWorker) rebasePaths(base string) {
	rebaseFiles(base, &c.APIKeyFile, &c.Register.TokenFile, &c.Register.CA)
}

func (c *Global) fillDerivedKeys() {
	defaultAdvertise(&c.Raft.Advertise, c.Raft.Listen)
	c.Tracing.fillProtocol()
}

func (c *Regional) fillDerivedKeys() {
	defaultAdvertise(&c.Peer.Advertise, c.Peer.Listen)
	c.Tracing.fillProtocol()
}

func (c *Local) fillDerivedKeys() {
	defaultAdvertise(&c.HTTP.Advertise, c.HTTP.Listen)
	c.Tracing.fillProtocol()
}

func (c *SimulatedWorker) fillDerivedKeys() {
	if c.ServedAs == "" {
		c.ServedAs = c.Model
	}
}

// defaultAdvertise uses the listening address if others can reach it.
func defaultAdvertise(to *string, listen string) {
	if *to == "" && !isUnspecifiedAddr(listen) {
		*to = listen
	}
}
