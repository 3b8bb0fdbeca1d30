package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/bench/machine"
	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
)

// loopbackNet is the second byte of the fleet's loopback addresses, so that a demo can run at the same time.
const loopbackNet = 77

// targetFleet is the fleet under attack, as an attacker sees it.
type targetFleet struct {
	binary    string
	fleet     *fleet.Files
	running   *fleet.Processes
	workers   []*victimWorker
	processes int
	removeDir string // a folder that goes with the fleet

	gateway string // base URL of the first region's gateway, in clear
	global  string // base URL of the first global node
	keys    map[string]string
	client  *http.Client
}

// startFleet writes the files of two regions with two zones each and three global nodes, puts the attackers' tenants
// into the spec, and starts everything.
func startFleet(ctx context.Context, binary, dir string) (*targetFleet, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("%w: run `make build` first", err)
	}
	t := &targetFleet{binary: binary, keys: map[string]string{}, client: &http.Client{
		Timeout:       30 * time.Second,
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "spillway-attack-"); err != nil {
			return nil, err
		}
		t.removeDir = dir
	}
	layout := fleet.Layout{Globals: 3, Regions: 2, Gateways: 1, Zones: 2, Locals: 1, Workers: 3, Net: loopbackNet}
	if t.fleet, err = fleet.WriteFiles(dir, layout); err != nil {
		return nil, err
	}
	if err := t.addTenants(); err != nil {
		return nil, err
	}
	if err := t.boundBodies(); err != nil {
		return nil, err
	}
	gateways, globals := t.fleet.NodesByRole("regional"), t.fleet.NodesByRole("global")
	t.gateway, t.global = "http://"+gateways[0].Addr["http"].String(), "http://"+globals[0].Addr["http"].String()
	if err := t.startNodes(ctx); err != nil {
		return nil, errors.Join(err, t.stopFleet())
	}
	return t, nil
}

// attackTenants of the attackers. acme, from the fleet's own spec, is the tenant that is not to be hurt.
const attackTenants = `
  - {name: mallory, class: interactive, keys: ["%s"]}
  - {name: narrow, keys: ["%s"], models: [qwen2.5-7b]}
  - {name: fenced, keys: ["%s"], regions: [virginia]}
  - {name: single, keys: ["%s"], limits: {concurrency: 1, requests_per_minute: 600}}
  - {name: metered, keys: ["%s"], limits: {tokens_per_minute: 20000}}
`

func (t *targetFleet) addTenants() error {
	var hashes []any
	for _, name := range []string{"mallory", "narrow", "fenced", "single", "metered"} {
		out, err := exec.Command(t.binary, "config", "key").Output()
		if err != nil {
			return fmt.Errorf("making a key: %w", err)
		}
		fields := strings.Fields(string(out)) // key: K hash: H
		if len(fields) != 4 {
			return fmt.Errorf("config key printed %q", out)
		}
		t.keys[name] = fields[1]
		hashes = append(hashes, fields[3])
	}
	acme, err := t.fleet.ReadTenantKey("acme")
	if err != nil {
		return err
	}
	t.keys["acme"] = acme
	text, err := os.ReadFile(t.fleet.SpecPath())
	if err != nil {
		return err
	}
	if !bytes.Contains(text, []byte("name: mallory")) {
		text = bytes.Replace(text, []byte("\ntenants:\n"), []byte("\ntenants:"+fmt.Sprintf(attackTenants, hashes...)), 1)
	}
	text = bytes.Replace(text, []byte("{name: qwen2.5-7b, max_context: 32768}"), []byte("{name: qwen2.5-7b, max_context: 32768, output_limit: 50}"), 1)
	if err := os.WriteFile(t.fleet.SpecPath(), text, 0o644); err != nil {
		return err
	}
	if out, err := exec.Command(t.binary, "config", "check", t.fleet.SpecPath()).CombinedOutput(); err != nil {
		return fmt.Errorf("the fleet's spec: %w: %s", err, out)
	}
	return nil
}

// boundBodies sets the memory for request bodies in the configurations of gateways and local instances.
func (t *targetFleet) boundBodies() error {
	for role, line := range map[string]string{"regional": "limits: {body_memory: %d}\n", "local": "body_memory: %d\n"} {
		for _, n := range t.fleet.NodesByRole(role) {
			path := t.fleet.ConfigPath(n)
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if bytes.Contains(text, []byte("body_memory:")) {
				continue // a fleet of an earlier run
			}
			if err := os.WriteFile(path, append(text, fmt.Sprintf(line, bodyMemory)...), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *targetFleet) startNodes(ctx context.Context) error {
	for _, n := range t.fleet.NodesByRole("worker") {
		v, err := startVictim(ctx, n)
		if err != nil {
			return err
		}
		t.workers = append(t.workers, v)
	}
	var err error
	if t.running, err = fleet.SpawnNodes(t.fleet, t.binary, "local", "regional", "global"); err != nil {
		return err
	}
	t.processes = len(t.fleet.Nodes) - len(t.workers)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := t.expectService(ctx)
		if err == nil {
			return nil
		}
		for id, exit := range t.running.ExitedNodes() {
			return fmt.Errorf("%s ended: %v; its log is in %s", id, exit, filepath.Join(t.fleet.Dir, "log"))
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the fleet does not serve: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (t *targetFleet) stopFleet() error {
	var err error
	if t.running != nil {
		err = t.running.Stop(context.Background())
	}
	for _, v := range t.workers {
		v.stopWorker(context.Background())
	}
	if t.removeDir != "" {
		err = errors.Join(err, os.RemoveAll(t.removeDir))
	}
	return err
}

func (t *targetFleet) resetWorkers() {
	for _, v := range t.workers {
		v.resetCounts()
	}
}

// countRequests counts requests at the workers, scrapes and probes of Spillway left out.
func (t *targetFleet) countRequests() (n int) {
	for _, v := range t.workers {
		v.withLock(func() {
			for _, k := range v.paths {
				n += k
			}
		})
	}
	return n
}

func (t *targetFleet) countDeaths() (n int) {
	for _, v := range t.workers {
		v.withLock(func() { n += v.deaths })
	}
	return n
}

// expectService has the tenant acme served and every worker of every zone ready, within the attack's time.
func (t *targetFleet) expectService(ctx context.Context) error {
	var last error
	for range 150 {
		if last = t.serviceNow(ctx); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(200 * time.Millisecond):
		}
	}
	return last
}

func (t *targetFleet) serviceNow(ctx context.Context) error {
	for i, n := range t.fleet.NodesByRole("regional") {
		got, err := t.postJSON(ctx, "http://"+n.Addr["http"].String()+"/v1/chat/completions", t.keys["acme"], chatBody("hello", 8))
		if err != nil {
			return err
		}
		if got.status != http.StatusOK {
			return fmt.Errorf("gateway %d answers acme with %d: %.200s", i+1, got.status, got.body)
		}
	}
	ready, total, err := t.readyWorkers(ctx)
	if err != nil {
		return err
	}
	if ready != total || total != len(t.workers) {
		return fmt.Errorf("%d of %d workers are ready, the fleet has %d", ready, total, len(t.workers))
	}
	return nil
}

// readyWorkers counts workers by the status of every zone.
func (t *targetFleet) readyWorkers(ctx context.Context) (ready, total int, err error) {
	for _, n := range t.fleet.NodesByRole("local") {
		got, err := t.sendRequest(ctx, socketClient(n.AdminSocket()), http.MethodGet, "http://admin/v1/status", "", nil)
		if err != nil {
			return 0, 0, fmt.Errorf("status of %s: %w", n.Name, err)
		}
		var state admin.Status
		if err := json.Unmarshal([]byte(got.body), &state); err != nil {
			return 0, 0, fmt.Errorf("status of %s: %w", n.Name, err)
		}
		for _, r := range state.Regions {
			for _, z := range r.Zones {
				for _, w := range z.Workers {
					total++
					if w.State == "ready" {
						ready++
					}
				}
			}
		}
	}
	return ready, total, nil
}

// socketClient speaks to a node's admin socket.
func socketClient(socket string) *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
}

// targetAnswer is what came back.
type targetAnswer struct {
	status int
	header http.Header
	body   string
}

// errorCode is the stable code of an OpenAI-shaped error.
func (a targetAnswer) errorCode() string {
	var e struct {
		Error struct {
			Code any `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal([]byte(a.body), &e)
	return fmt.Sprint(e.Error.Code)
}

func (t *targetFleet) postJSON(ctx context.Context, url, key, body string, header ...string) (targetAnswer, error) {
	return t.sendRequest(ctx, t.client, http.MethodPost, url, key, strings.NewReader(body), header...)
}

func (t *targetFleet) sendRequest(ctx context.Context, c *http.Client, method, url, key string, body io.Reader, header ...string) (targetAnswer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return targetAnswer{}, err
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return targetAnswer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	return targetAnswer{resp.StatusCode, resp.Header, string(text)}, err
}

// sendRaw sends bytes over a new connection to a listener in clear and returns what comes back until it ends or wait is over.
func (t *targetFleet) sendRaw(ctx context.Context, url, text string, wait time.Duration) (string, error) {
	got, _, err := t.rawTimed(ctx, url, text, wait)
	return got, err
}

// rawTimed is raw with the time to the first byte that comes back.
func (t *targetFleet) rawTimed(ctx context.Context, url, text string, wait time.Duration) (got string, first time.Duration, err error) {
	began := time.Now()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return "", 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(began.Add(wait)); err != nil {
		return "", 0, err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return "", 0, err
	}
	var out bytes.Buffer
	_, err = io.CopyN(&out, conn, 1)
	first = time.Since(began)
	if err == nil {
		_, err = io.Copy(&out, io.LimitReader(conn, 1<<20))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || err == io.EOF {
		err = nil
	}
	return out.String(), first, err
}

// zoneClient speaks to zones with a gateway's certificate: what a tenant could do who got past the gateway.
func (t *targetFleet) zoneClient() (*http.Client, string, error) {
	gateway, zone := t.fleet.NodesByRole("regional")[0], t.fleet.NodesByRole("local")[0]
	id := identity.ID{TrustDomain: "spillway.test", Role: identity.RoleGateway, Region: gateway.Region, Name: gateway.Name}
	certs, err := identity.LoadCerts(id.FilesIn(filepath.Join(t.fleet.Dir, "certs")), nil)
	if err != nil {
		return nil, "", err
	}
	cfg := certs.ClientTLS(forward.ALPN, func(id identity.ID) error {
		if id.Role != identity.RoleLocal {
			return fmt.Errorf("%s is no local instance", id)
		}
		return nil
	})
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		return (&tls.Dialer{Config: cfg}).DialContext(ctx, network, addr)
	}
	return &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialTLSContext: dial}}, "https://" + zone.Addr["http"].String(), nil
}

// chatBody is the body of a chat completion.
func chatBody(prompt string, tokens int) string {
	b, _ := json.Marshal(map[string]any{
		"model": "llama-3.1-8b", "max_tokens": tokens, "messages": []any{map[string]string{"role": "user", "content": prompt}},
	})
	return string(b)
}

// runCommand runs the spillway command line and returns its output.
func (t *targetFleet) runCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, t.binary, args...)
	machine.KillWithParent(cmd)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
