package admin_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/console"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// TestConsoleAtNetworkListener logs in with tokens of two roles, and reads, drains and streams with the cookie only.
func TestConsoleAtNetworkListener(t *testing.T) {
	dir := t.TempDir()
	ca, err := identity.NewDevCA(dir, "test.example")
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.IssueCert(identity.ID{TrustDomain: "test.example", Role: identity.RoleGlobal, Name: "g1"}, dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certs, err := identity.LoadCerts(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	const operator, viewer = "tok-operator-012345", "tok-viewer-0123456"
	s := startServer(t, admin.Config{Role: "global", Node: "g1", Listen: "127.0.0.1:0", Certs: certs, Backend: fullBackend(), Grants: []admin.RoleGrant{
		{Name: "olga", Role: admin.RoleOperator, Token: spec.HashKey(operator)}, {Name: "vera", Role: admin.RoleViewer, Token: spec.HashKey(viewer)},
	}})
	base := "https://" + s.ListenAddr().String()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // the browser's user accepts the fleet's CA
	defer client.CloseIdleConnections()
	send := func(method, path, body string, headers map[string]string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	logIn := func(token string) string {
		t.Helper()
		resp := send("POST", "/console/login", `{"token":"`+token+`"}`, map[string]string{console.WriteHeader: "1"})
		if len(resp.Cookies()) != 1 {
			t.Fatalf("the login returned %s and no cookie", resp.Status)
		}
		return resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
	}
	asOperator, asViewer := logIn(operator), logIn(viewer)
	forged := console.SecureCookieName + "=" + base64.RawURLEncoding.EncodeToString([]byte("tok-other"))
	own := func(cookie string) map[string]string {
		return map[string]string{"Cookie": cookie, console.WriteHeader: "1", "Origin": base, "Sec-Fetch-Site": "same-origin"}
	}
	for name, x := range map[string]struct {
		method, path string
		headers      map[string]string
		want         int
	}{
		"the page without a login":          {"GET", "/console/", nil, 200},
		"the status without a login":        {"GET", "/v1/status", nil, 401},
		"the status with a forged cookie":   {"GET", "/v1/status", map[string]string{"Cookie": forged}, 401},
		"a viewer's status":                 {"GET", "/v1/status", map[string]string{"Cookie": asViewer}, 200},
		"a viewer's drain":                  {"POST", "/v1/drains", own(asViewer), 403},
		"an operator's drain":               {"POST", "/v1/drains", own(asOperator), 200},
		"an operator's snapshot":            {"GET", "/v1/snapshot", map[string]string{"Cookie": asOperator}, 403},
		"a drain without the page's header": {"POST", "/v1/drains", map[string]string{"Cookie": asOperator}, 401},
		"a drain of another site":           {"POST", "/v1/drains", map[string]string{"Cookie": asOperator, console.WriteHeader: "1", "Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403},
		"a login of another site":           {"POST", "/console/login", map[string]string{console.WriteHeader: "1", "Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403},
		"a stream without a login":          {"GET", "/console/stream?feeds=status", nil, 401},
		"a bearer token takes precedence":   {"GET", "/v1/status", map[string]string{"Cookie": asOperator, "Authorization": "Bearer wrong"}, 401},
		"the health check as before":        {"GET", "/healthz", nil, 200},
	} {
		if got := send(x.method, x.path, `{"path":"eu"}`, x.headers); got.StatusCode != x.want {
			t.Errorf("%s: %s, want %d", name, got.Status, x.want)
		}
	}

	stream := send("GET", "/console/stream?feeds=status", "", map[string]string{"Cookie": asViewer})
	lines := bufio.NewScanner(stream.Body)
	seen := false
	for !seen && lines.Scan() {
		seen = lines.Text() == "event: status"
	}
	if !seen {
		t.Fatalf("the stream sent no status: %v", lines.Err())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Errorf("an open stream keeps the node from stopping: %v", err)
	}
}
