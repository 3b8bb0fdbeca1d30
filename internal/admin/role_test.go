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

// everything is a backend that can do all there is, and says who asked.
func everything() admin.Backend {
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

func status(err error) int {
	var e *admin.Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// TestRoles lets callers with a certificate and with a token in, each as far as its grant goes.
func TestRoles(t *testing.T) {
	dir := t.TempDir()
	ca, err := identity.NewDevCA(dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	issue := func(role identity.Role, name string) *identity.Certs {
		f, err := ca.Issue(identity.ID{TrustDomain: "test.example", Role: role, Name: name}, dir, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		c, err := identity.Load(f, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const token = "tok-0123456789abcdef"
	s := start(t, admin.Config{Listen: "127.0.0.1:0", Certs: issue(identity.RoleGlobal, "g1"), Backend: everything(), Grants: []admin.Grant{
		{Name: "alice", Role: admin.Admin}, {Name: "bob", Role: admin.Viewer}, {Name: "ci", Role: admin.Operator, Token: spec.HashKey(token)},
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
		look, drain, archive int // 0: allowed
	}{
		"an admin's certificate":     {dial(t, server, issue(identity.RoleOperator, "alice")), 0, 0, 0},
		"a viewer's certificate":     {dial(t, server, issue(identity.RoleOperator, "bob")), 0, 403, 403},
		"a certificate not listed":   {dial(t, server, issue(identity.RoleOperator, "eve")), 403, 403, 403},
		"an operator's token":        {byToken(token), 0, 0, 403},
		"a wrong token":              {byToken(token + "x"), 401, 401, 401},
		"no token":                   {byToken(""), 401, 401, 401},
		"a token too long to be one": {byToken(strings.Repeat("a", 4096)), 401, 401, 401},
	} {
		_, err := c.client.Status(t.Context())
		if got := status(err); got != c.look {
			t.Errorf("%s looks: %d (%v), want %d", name, got, err, c.look)
		}
		a, err := c.client.Drain(t.Context(), admin.DrainRequest{Path: "eu"})
		if got := status(err); got != c.drain {
			t.Errorf("%s drains: %d (%v), want %d", name, got, err, c.drain)
		}
		if name == "an operator's token" && a.Note != "token:ci" {
			t.Errorf("a token's actor is %q", a.Note)
		}
		_, err = c.client.Archive(t.Context())
		if got := status(err); got != c.archive {
			t.Errorf("%s takes the state: %d (%v), want %d", name, got, err, c.archive)
		}
	}
	if _, err := dial(t, server, issue(identity.RoleGlobal, "g9")).Status(t.Context()); err == nil {
		t.Error("a node came in as an operator")
	}
}

func TestGrantsThatAreRefused(t *testing.T) {
	for text, g := range map[string][]admin.Grant{
		"needs a name": {{Role: admin.Admin}},
		"has no role":  {{Name: "a"}},
		"two grants":   {{Name: "a", Role: admin.Admin}, {Name: "a", Role: admin.Viewer}},
		"no hash":      {{Name: "a", Role: admin.Admin, Token: "secret"}},
	} {
		if _, err := admin.New(admin.Config{Grants: g}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want an error that says %q, got %v", text, err)
		}
	}
}

// TestDescriptionFitsTheCalls asks for every call that the description lists: each is there, with the role it needs and
// schemas whose references all resolve; and what is not listed is answered with where the list is.
func TestDescriptionFitsTheCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	start(t, admin.Config{Socket: path, Backend: everything()})
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
				t.Errorf("%s %s is described and answered %d", m, p, resp.StatusCode)
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
		t.Errorf("an unknown call is answered with %s", body)
	}
}
