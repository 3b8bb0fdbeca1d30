package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/console"
)

// openConsole serves the console of a node of a fleet.
func openConsole(t *testing.T, socket string) *localConsole {
	t.Helper()
	c, err := startConsole("127.0.0.1:0", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// TestConsoleInBrowser opens every view of a running fleet in a browser, compares figures with the API, and drains a region.
// With SPILLWAY_SCREENSHOTS=DIR it writes a PNG of each view.
func TestConsoleInBrowser(t *testing.T) {
	b := openBrowser(t)
	w := startInProcessFleet(t, 2, 4)
	node := w.NodesByRole("global")[0]
	demo := demoOptions{layout: w.Layout, trafficRate: 6}
	stopTraffic, err := demo.startBackgroundTraffic(t.Context(), io.Discard, w.Files)
	if err != nil {
		t.Fatal(err)
	}
	defer stopTraffic()
	local := openConsole(t, node.AdminSocket())
	api, err := admin.Dial("unix://"+node.AdminSocket(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()

	b.setScreen(1360, 900, false, false)
	b.call("Page.navigate", map[string]any{"url": local.URL()}, nil)
	b.waitUntil("the table of regions", `document.querySelector('table[aria-label="Regions"]')`)
	if hash := b.eval("location.hash"); strings.Contains(hash, "token") {
		t.Errorf("the token stays in the address: %s", hash)
	}
	if cookie := b.eval("document.cookie"); cookie != "" {
		t.Errorf("scripts can read the cookie: %s", cookie)
	}
	checkRegionFigures(t, b, api)
	checkViews(t, b, api)
	checkExplainer(t, b)
	checkTheme(t, b)
	checkDrainInBrowser(t, b, api)
	if errs := b.takeErrors(); len(errs) > 0 {
		t.Errorf("the browser's console has: %s", strings.Join(errs, "\n"))
	}
	if dir := os.Getenv("SPILLWAY_SCREENSHOTS"); dir != "" {
		saveViews(t, b, api, dir)
		saveOtherTiers(t, b, w, dir)
	}
	checkLostConnection(t, b, local)
}

// openView opens a view and waits for its heading.
func openView(b *testBrowser, id, ready string) {
	b.t.Helper()
	b.eval("location.hash = " + quoteJS("#"+id))
	b.waitUntil("the view "+id, fmt.Sprintf(`document.querySelector('nav a[aria-current]')?.dataset.view === %s && document.querySelector(%s)`, quoteJS(id), quoteJS(ready)))
}

// rowsOf returns the texts of a table's cells by the text of the first cell.
func rowsOf(b *testBrowser, table string) map[string][]string {
	b.t.Helper()
	text := b.eval(fmt.Sprintf(`JSON.stringify([...document.querySelectorAll('table[aria-label=%s] tbody tr')].map((r) => [r.dataset.key, ...[...r.cells].map((c) => c.innerText.trim())]))`, quoteJS(table)))
	var rows [][]string
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		b.t.Fatalf("reading the table %s: %v", table, err)
	}
	out := map[string][]string{}
	for _, r := range rows {
		out[r[0]] = r[1:]
	}
	return out
}

func checkRegionFigures(t *testing.T, b *testBrowser, api *admin.Client) {
	t.Helper()
	waitForSuccess(t, testTimeout, "the figures of the regions", func() error {
		s, err := api.GetStatus(t.Context())
		if err != nil {
			return err
		}
		rows := rowsOf(b, "Regions")
		for _, r := range s.Regions {
			var ready, total, prefill int64
			for _, m := range r.Models {
				ready, total, prefill = ready+m.Ready, total+m.Total, prefill+m.PrefillRate
			}
			row := rows[r.Name]
			if len(row) < 14 || row[4] != fmt.Sprintf("%d/%d", ready, total) || row[1] != "reporting" || row[2] != "ready" || row[12] != formatCount(prefill) {
				return fmt.Errorf("region %s: the page shows %q, the API %d/%d workers, prefill %s", r.Name, row, ready, total, formatCount(prefill))
			}
			if row[10] == "–" {
				return fmt.Errorf("region %s shows no TTFT: %q", r.Name, row)
			}
		}
		if circles := b.eval(`document.querySelectorAll('svg.map circle').length`); circles != fmt.Sprint(len(s.Regions)) {
			return fmt.Errorf("the map has %s circles for %d regions", circles, len(s.Regions))
		}
		return nil
	})
}

// consoleViews are the views of a global node, each with what it must contain.
var consoleViews = []struct{ id, ready string }{
	{"fleet", `table[aria-label="Regions"]`},
	{"workers", ".heat button"},
	{"latency", `table[aria-label="By region"]`},
	{"plans", `table[aria-label="History"]`},
	{"explain", "form"},
	{"tenants", `table[aria-label="Tenants"]`},
	{"raft", `table[aria-label="Members"]`},
	{"drains", "form"},
	{"events", `table[aria-label="Events"]`},
	{"node", `table[aria-label="Configuration in force"]`},
}

func checkViews(t *testing.T, b *testBrowser, api *admin.Client) {
	t.Helper()
	for _, v := range consoleViews {
		openView(b, v.id, v.ready)
		if b.eval("document.body.classList.contains('old')") == "true" {
			b.waitUntil("live figures in "+v.id, "!document.body.classList.contains('old')")
		}
	}
	if got := b.eval(`document.querySelectorAll('nav a').length`); got != fmt.Sprint(len(consoleViews)) {
		t.Errorf("the page offers %s views, the test knows %d", got, len(consoleViews))
	}
	s, err := api.GetStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	workers := 0
	for _, r := range s.Regions {
		for _, z := range r.Zones {
			workers += len(z.Workers)
		}
	}
	openView(b, "workers", ".heat button")
	if got := b.eval(`document.querySelectorAll('.heat button').length`); workers == 0 || got != fmt.Sprint(workers) {
		t.Errorf("the heat map has %s workers, the API %d", got, workers)
	}
	first := s.Regions[0].Zones[0]
	b.eval(fmt.Sprintf(`document.querySelector('.heat button[data-path=%s]').click()`, quoteJS(s.Regions[0].Name+"/"+first.Name+"/"+first.Workers[0].Name)))
	b.waitUntil("the worker's details", fmt.Sprintf(`document.querySelector('aside dl')?.innerText.includes(%s)`, quoteJS(first.Workers[0].URL)))
	members, err := api.ListMembers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	openView(b, "raft", `table[aria-label="Members"]`)
	rows := rowsOf(b, "Members")
	for _, m := range members.Members {
		if row := rows[m.Name]; len(row) < 4 || strings.Contains(row[2], "leader") != m.Leader || row[1] != m.Addr {
			t.Errorf("member %s: the page shows %q, the API %+v", m.Name, row, m)
		}
	}
	openView(b, "tenants", `table[aria-label="Tenants"]`)
	tenants, err := api.GetTenants(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows = rowsOf(b, "Tenants")
	for i := range tenants.Tenants {
		x := &tenants.Tenants[i]
		if row := rows[x.Name]; len(row) < 9 || row[1] != x.Class || x.Concurrency > 0 != !strings.Contains(row[8], "unlimited") {
			t.Errorf("tenant %s: the page shows %q, the API %+v", x.Name, row, x)
		}
	}
	if k := slices.IndexFunc(tenants.Tenants, func(x admin.TenantStatus) bool { return x.Name == "acme" }); k < 0 || tenants.Tenants[k].Use.RequestsPerMinute <= 0 {
		t.Errorf("the use of tenant acme is %+v while it sends requests", tenants.Tenants)
	}
}

func checkExplainer(t *testing.T, b *testBrowser) {
	t.Helper()
	openView(b, "explain", "form")
	b.eval(`(() => { const f = document.querySelector('main form'); f.elements.from.value = '198.51.100.10'; f.elements.model.value = 'llama-3.1-8b'; f.requestSubmit(); })()`)
	b.waitUntil("the explanation", `document.querySelectorAll('main section h2').length >= 3 && document.querySelector('main table[aria-label="global"]')`)
	if text := b.eval("document.querySelector('main section h2').innerText"); !strings.HasPrefix(text, "global ") || !strings.Contains(text, ":") {
		t.Errorf("the first decision is %q", text)
	}
}

func checkTheme(t *testing.T, b *testBrowser) {
	t.Helper()
	theme := func() string { return b.eval("document.documentElement.dataset.theme") }
	if theme() != "light" {
		t.Errorf("the theme is %s in a light system", theme())
	}
	b.setScreen(1360, 900, false, true)
	b.waitUntil("the dark theme of the system", "document.documentElement.dataset.theme === 'dark'")
	b.setScreen(390, 844, true, false)
	openView(b, "fleet", `table[aria-label="Regions"]`)
	if b.eval("document.documentElement.scrollWidth <= 390") != "true" {
		t.Errorf("on a phone the page is %s px wide", b.eval("document.documentElement.scrollWidth"))
	}
	b.setScreen(1360, 900, false, false)
}

func checkDrainInBrowser(t *testing.T, b *testBrowser, api *admin.Client) {
	t.Helper()
	s, err := api.GetStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := s.Regions[len(s.Regions)-1].Name
	submit := fmt.Sprintf(`(() => { const f = document.querySelector('main form'); f.elements.path.value = %s; f.elements.for.value = '30m'; f.elements.reason.value = 'driver update'; f.requestSubmit(f.querySelector('button[value=drain]')); })()`, quoteJS(path))
	openView(b, "drains", "form")
	b.eval(submit)
	b.waitUntil("the confirmation", "document.getElementById('dialog').open")
	if text := b.eval("document.getElementById('dialog').innerText"); !strings.Contains(text, fmt.Sprintf("%d of %d regions remain", len(s.Regions)-1, len(s.Regions))) {
		t.Errorf("the confirmation shows no impact: %s", text)
	}
	if d, err := api.ListDrains(t.Context()); err != nil || len(d.Drains) != 0 {
		t.Fatalf("before the confirmation the drains are %+v (%v)", d, err)
	}
	b.eval("document.getElementById('confirm').click()")
	b.waitUntil("the drain in the list", fmt.Sprintf(`[...document.querySelectorAll('table[aria-label="Drains"] tbody tr')].some((r) => r.dataset.key === %s && r.innerText.includes('driver update') && r.innerText.includes('29 min'))`, quoteJS(path)))
	d, err := api.ListDrains(t.Context())
	if err != nil || len(d.Drains) != 1 || d.Drains[0].Path != path || d.Drains[0].Reason != "driver update" || time.Until(d.Drains[0].Until) > 30*time.Minute {
		t.Fatalf("the drains are %+v (%v)", d, err)
	}
	if errs := b.takeErrors(); len(errs) > 0 {
		t.Errorf("the browser's console has: %s", strings.Join(errs, "\n"))
	}
	b.eval(submit)
	b.waitUntil("the warning of the conflict", "document.getElementById('dialog').open && document.getElementById('dialog').innerText.includes('drained already')")
	b.eval("document.getElementById('confirm').click()")
	b.waitUntil("the conflict", `[...document.querySelectorAll('main .notice.bad')].some((n) => n.innerText.startsWith('Conflict: ') && n.innerText.includes('drained already'))`)
	b.takeErrors() // Chromium logs each answer with status 409
	openView(b, "events", `table[aria-label="Events"]`)
	b.waitUntil("the drain in the audit log", `document.querySelector('table[aria-label="Events"] tbody tr').innerText.includes('driver update')`)
	if dir := os.Getenv("SPILLWAY_SCREENSHOTS"); dir != "" {
		return // the views are shown with the drain; saveViews ends it
	}
	endDrainInBrowser(t, b, api, path)
}

func endDrainInBrowser(t *testing.T, b *testBrowser, api *admin.Client, path string) {
	t.Helper()
	openView(b, "drains", `table[aria-label="Drains"]`)
	b.eval(`document.querySelector('button[data-action=undrain]').click()`)
	b.waitUntil("the confirmation", "document.getElementById('dialog').open")
	b.eval("document.getElementById('confirm').click()")
	b.waitUntil("the end of the drain", `document.querySelector('main .notice.good')`)
	if d, err := api.ListDrains(t.Context()); err != nil || len(d.Drains) != 0 {
		t.Errorf("after the end of the drain of %s the drains are %+v (%v)", path, d, err)
	}
}

// checkLostConnection stops the server: the page must say that its figures are old.
func checkLostConnection(t *testing.T, b *testBrowser, local *localConsole) {
	t.Helper()
	openView(b, "fleet", `table[aria-label="Regions"]`)
	local.Stop()
	b.waitUntil("the notice of the lost connection", `document.body.classList.contains('old') && !document.getElementById('lost').hidden && /figures as of [0-9.]+ s ago/.test(document.getElementById('lost').innerText)`)
	if text := b.eval("document.getElementById('live').innerText"); strings.Contains(text, "live") {
		t.Errorf("without a connection the page shows %q", text)
	}
}

// saveViews writes screenshots of all views in light, dark and on a phone.
func saveViews(t *testing.T, b *testBrowser, api *admin.Client, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, look := range []struct {
		name          string
		width, height int
		phone, dark   bool
	}{{"light", 1360, 900, false, false}, {"dark", 1360, 900, false, true}, {"phone", 390, 844, true, false}} {
		b.setScreen(look.width, look.height, look.phone, look.dark)
		for _, v := range consoleViews {
			openView(b, v.id, v.ready)
			b.waitUntil("live figures", "document.getElementById('live').innerText === 'live'")
			b.saveScreenshot(dir, v.id+"-"+look.name)
		}
	}
	b.setScreen(1360, 900, false, false)
	d, err := api.ListDrains(t.Context())
	if err != nil || len(d.Drains) == 0 {
		t.Fatalf("the drains are %+v (%v)", d, err)
	}
	endDrainInBrowser(t, b, api, d.Drains[0].Path)
}

// saveOtherTiers writes screenshots of the consoles of a gateway and a local instance.
func saveOtherTiers(t *testing.T, b *testBrowser, w *inProcessFleet, dir string) {
	t.Helper()
	back := b.eval("location.href")
	for role, views := range map[string][]string{"regional": {"fleet", "tenants", "node"}, "local": {"fleet", "workers", "queue", "node"}} {
		c := openConsole(t, w.NodesByRole(role)[0].AdminSocket())
		b.call("Page.navigate", map[string]any{"url": c.URL()}, nil)
		b.waitUntil("the views", fmt.Sprintf("location.host === %s && document.querySelector('nav a')", quoteJS(c.listener.Addr().String())))
		for _, v := range views {
			openView(b, v, "main h1")
			b.waitUntil("live figures", "document.getElementById('live').innerText === 'live'")
			time.Sleep(200 * time.Millisecond) // the first answer of each feed
			b.saveScreenshot(dir, v+"-"+role)
		}
	}
	b.call("Page.navigate", map[string]any{"url": back}, nil)
	b.waitUntil("the views", fmt.Sprintf("location.href.startsWith(%s) && document.querySelector('nav a')", quoteJS(back[:strings.Index(back, "#")])))
}

// TestLocalConsoleGuardsItsNode calls the bridge as other programs and sites of this machine could.
func TestLocalConsoleGuardsItsNode(t *testing.T) {
	dir, err := os.MkdirTemp("", "spw")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	drained := ""
	s, err := admin.New(admin.Config{Socket: dir + "/a.sock", Role: "global", Node: "g1", Backend: admin.Backend{
		Status: func(ctx context.Context) (*admin.Status, error) { return &admin.Status{Node: "g1"}, nil },
		Drain: func(_ context.Context, r admin.DrainRequest, _ string) (*admin.DrainAnswer, error) {
			drained = r.Path
			return &admin.DrainAnswer{}, nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Stop(t.Context())
	c := openConsole(t, dir+"/a.sock")
	base := "http://" + c.listener.Addr().String()
	send := func(method, path, body string, headers map[string]string) int {
		req, _ := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		for k, v := range headers {
			if req.Header.Set(k, v); k == "Host" {
				req.Host = v
			}
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	cookie := c.cookieName + "=" + base64.RawURLEncoding.EncodeToString([]byte(c.token))
	for _, x := range []struct {
		name, method, path string
		headers            map[string]string
		want               int
	}{
		{"a page", "GET", "/console/", nil, 200},
		{"a call without a login", "GET", "/v1/status", nil, 401},
		{"the stream without a login", "GET", "/console/stream?feeds=status", nil, 401},
		{"a wrong token", "GET", "/v1/status", map[string]string{"Cookie": c.cookieName + "=d3Jvbmc"}, 401},
		{"another name of the address", "GET", "/console/", map[string]string{"Host": "evil.example"}, 421},
		{"a call with the cookie", "GET", "/v1/status", map[string]string{"Cookie": cookie}, 200},
		{"a drain without the page's header", "POST", "/v1/drains", map[string]string{"Cookie": cookie, "Content-Type": "application/json"}, 401},
		{"a drain from another site", "POST", "/v1/drains", map[string]string{"Cookie": cookie, "Content-Type": "application/json", console.WriteHeader: "1", "Origin": "https://evil.example"}, 403},
	} {
		if got := send(x.method, x.path, `{"path":"fra"}`, x.headers); got != x.want {
			t.Errorf("%s: %d, want %d", x.name, got, x.want)
		}
	}
	if drained != "" {
		t.Fatalf("a refused call drained %s", drained)
	}
	own := map[string]string{"Cookie": cookie, "Content-Type": "application/json", console.WriteHeader: "1", "Origin": base, "Sec-Fetch-Site": "same-origin"}
	if got := send("POST", "/v1/drains", `{"path":"fra"}`, own); got != 200 || drained != "fra" {
		t.Errorf("the page's own drain: %d, drained %q", got, drained)
	}
	for _, bad := range []string{"0.0.0.0:0", "192.0.2.1:80", "localhost", "127.0.0.1"} {
		if c, err := startConsole(bad, "x"); err == nil {
			c.Stop()
			t.Errorf("startConsole accepts %q: its connections are not encrypted", bad)
		}
	}
	if _, err := chooseConsoleSocket(t.Context(), "https://g1.example:9443"); err == nil || !strings.Contains(err.Error(), "https://g1.example:9443/console/") {
		t.Errorf("an https server: %v", err)
	}
}
