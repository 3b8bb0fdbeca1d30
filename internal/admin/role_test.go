package admin_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// fullBackend returns a backend that supports every call used by the tests and returns the actor.
func fullBackend() admin.Backend {
	return admin.Backend{
		Status: func(context.Context) (*admin.Status, error) { return &admin.Status{Node: "g1"}, nil },
		Drain: func(_ context.Context, _ admin.DrainRequest, actor string) (*admin.DrainAnswer, error) {
			return &admin.DrainAnswer{Note: actor}, nil
		},
		Members: func(context.Context) (*admin.MembersAnswer, error) { return &admin.MembersAnswer{}, nil },
		RemoveMember: func(_ context.Context, name, reason, actor string) (*admin.MembersAnswer, error) {
			return &admin.MembersAnswer{Node: name + "/" + reason + "/" + actor}, nil
		},
		Archive: func(context.Context) (*admin.ArchiveAnswer, error) {
			return &admin.ArchiveAnswer{Data: []byte("x")}, nil
		},
	}
}

func statusOf(err error) int {
	var e *admin.Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// TestCallsRequireTheirRole makes calls by certificate and by token, with every role.
func TestCallsRequireTheirRole(t *testing.T) {
	dir := t.TempDir()
	ca, err := identity.NewDevCA(dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	issue := func(role identity.Role, name string) *identity.Certs {
		f, err := ca.IssueCert(identity.ID{TrustDomain: "test.example", Role: role, Name: name}, dir, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		c, err := identity.LoadCerts(f, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const token = "tok-0123456789abcdef"
	s := startServer(t, admin.Config{Listen: "127.0.0.1:0", Certs: issue(identity.RoleGlobal, "g1"), Backend: fullBackend(), Grants: []admin.RoleGrant{
		{Name: "alice", Role: admin.RoleAdmin}, {Name: "bob", Role: admin.RoleViewer}, {Name: "ci", Role: admin.RoleOperator, Token: spec.HashKey(token)},
	}})
	server := "https://" + s.ListenAddr().String()
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	byToken := func(tok string) *admin.Client {
		c, err := admin.DialToken(server, roots, tok)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	for name, c := range map[string]struct {
		client               *admin.Client
		read, drain, archive int // expected status; 0: allowed
	}{
		"an admin's certificate":     {dialServer(t, server, issue(identity.RoleOperator, "alice")), 0, 0, 0},
		"a viewer's certificate":     {dialServer(t, server, issue(identity.RoleOperator, "bob")), 0, 403, 403},
		"a certificate not listed":   {dialServer(t, server, issue(identity.RoleOperator, "eve")), 403, 403, 403},
		"an operator's token":        {byToken(token), 0, 0, 403},
		"a wrong token":              {byToken(token + "x"), 401, 401, 401},
		"no token":                   {byToken(""), 401, 401, 401},
		"a token too long to be one": {byToken(strings.Repeat("a", 4096)), 401, 401, 401},
	} {
		_, err := c.client.GetStatus(t.Context())
		if got := statusOf(err); got != c.read {
			t.Errorf("%s reads: %d (%v), want %d", name, got, err, c.read)
		}
		a, err := c.client.StartDrain(t.Context(), admin.DrainRequest{Path: "eu"})
		if got := statusOf(err); got != c.drain {
			t.Errorf("%s drains: %d (%v), want %d", name, got, err, c.drain)
		}
		if name == "an operator's token" && a.Note != "token:ci" {
			t.Errorf("a token's actor is %q", a.Note)
		}
		_, err = c.client.GetArchive(t.Context())
		if got := statusOf(err); got != c.archive {
			t.Errorf("%s saves the state: %d (%v), want %d", name, got, err, c.archive)
		}
	}
	if _, err := dialServer(t, server, issue(identity.RoleGlobal, "g9")).GetStatus(t.Context()); err == nil {
		t.Error("a node's certificate was accepted as an operator's")
	}
}

func TestInvalidGrantsAreRefused(t *testing.T) {
	for text, g := range map[string][]admin.RoleGrant{
		"needs a name": {{Role: admin.RoleAdmin}},
		"has no role":  {{Name: "a"}},
		"two grants":   {{Name: "a", Role: admin.RoleAdmin}, {Name: "a", Role: admin.RoleViewer}},
		"not a hash":   {{Name: "a", Role: admin.RoleAdmin, Token: "secret"}},
	} {
		if _, err := admin.New(admin.Config{Grants: g}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want an error with %q, got %v", text, err)
		}
	}
}

// TestOpenAPIMatchesRoutes makes every call in the OpenAPI description: each exists, with its role and with schemas whose
// references resolve. The error of an unknown call names the description.
func TestOpenAPIMatchesRoutes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	startServer(t, admin.Config{Socket: path, Backend: fullBackend()})
	hc := rawClient(t, path)
	resp, err := hc.Get("http://node/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Summary, Description string
			RequestBody          *struct{}
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(raw, &d); err != nil || d.OpenAPI != "3.1.0" {
		t.Fatalf("description: %v, version %q", err, d.OpenAPI)
	}
	calls := 0
	for p, methods := range d.Paths {
		for m, op := range methods {
			calls++
			if op.Summary == "" || !strings.Contains(op.Description, "role") || (op.RequestBody != nil) != (m == "post" || m == "put") {
				t.Errorf("%s %s is described as %+v", m, p, op)
			}
			req, err := http.NewRequestWithContext(t.Context(), strings.ToUpper(m), "http://node"+p, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := hc.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed {
				t.Errorf("%s %s is described and has status %d", m, p, resp.StatusCode)
			}
		}
	}
	if calls < 15 {
		t.Errorf("only %d calls are described", calls)
	}
	for _, part := range strings.Split(string(raw), `"#/components/schemas/`)[1:] {
		if name, _, _ := strings.Cut(part, `"`); len(d.Components.Schemas[name].Properties) == 0 {
			t.Errorf("schema %q is referred to and has no properties", name)
		}
	}
	if props := d.Components.Schemas["Drain"].Properties; props["path"] == nil || props["until"] == nil {
		t.Errorf("a drain has %v", props)
	}
	resp, err = hc.Get("http://node/v1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); !strings.Contains(string(body), "openapi.json") {
		t.Errorf("an unknown call gets %s", body)
	}
}
