package live

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

// target is the fleet as outsiders see it.
type target struct {
	files   *fleet.Files
	globals []fleet.Node
	regions []string
	http    *http.Client

	mu   sync.Mutex
	down map[string]bool // global nodes that a fault has taken down
}

func newTarget(files *fleet.Files) *target {
	t := &target{files: files, globals: files.NodesByRole("global"), down: map[string]bool{}, http: &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	for _, s := range fleet.AllSites()[:files.Layout.Regions] {
		t.regions = append(t.regions, s.Name)
	}
	return t
}

func (t *target) setDown(node string, down bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down[node] = down
}

func (t *target) isDown(node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.down[node]
}

// regionOf is the region whose gateway has an address; empty for none.
func (t *target) regionOf(a netip.Addr) string {
	for _, n := range t.files.NodesByRole("regional") {
		if n.Addr["http"].Addr() == a {
			return n.Region
		}
	}
	return ""
}

// dnsReply is the answer of a global node.
type dnsReply struct {
	region              string
	ttl                 time.Duration
	took                time.Duration
	queryLen, answerLen int
}

// dnsTimeout bounds the wait for an answer.
const dnsTimeout = 500 * time.Millisecond

// queryDNS queries a global node as a client of a region.
func (t *target) queryDNS(ctx context.Context, n fleet.Node, region int) (r dnsReply, err error) {
	name, err := dnsmessage.NewName(fleet.ServiceName)
	if err != nil {
		return r, err
	}
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: uint16(time.Now().UnixNano())}, Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	msg, err := q.Pack()
	if err != nil {
		return r, err
	}
	d := net.Dialer{Timeout: dnsTimeout}
	if a, ok := t.files.ClientAddr(region); ok {
		d.LocalAddr = &net.UDPAddr{IP: a.AsSlice()}
	}
	began := time.Now()
	conn, err := d.DialContext(ctx, "udp", n.Addr["dns"].String())
	if err != nil {
		return r, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(began.Add(dnsTimeout)); err != nil {
		return r, err
	}
	if _, err := conn.Write(msg); err != nil {
		return r, err
	}
	buf := make([]byte, 4096)
	size, err := conn.Read(buf)
	if err != nil {
		return r, err
	}
	r.took, r.queryLen, r.answerLen = time.Since(began), len(msg), size
	var m dnsmessage.Message
	if err := m.Unpack(buf[:size]); err != nil {
		return r, fmt.Errorf("a malformed answer: %w", err)
	}
	if m.RCode != dnsmessage.RCodeSuccess || m.ID != q.ID {
		return r, fmt.Errorf("answer %s", m.RCode)
	}
	for _, rr := range m.Answers {
		if a, ok := rr.Body.(*dnsmessage.AResource); ok {
			r.region, r.ttl = t.regionOf(netip.AddrFrom4(a.A)), time.Duration(rr.Header.TTL)*time.Second
			break
		}
	}
	return r, nil
}

// maxPageBytes bounds a metrics page.
const maxPageBytes = 4 << 20

// fetchMetrics returns the samples of a node's metrics page by their name with labels.
func (t *target) fetchMetrics(ctx context.Context, n fleet.Node) (map[string]float64, error) {
	return t.fetchPage(ctx, n.Addr["metrics"])
}

func (t *target) fetchPage(ctx context.Context, at netip.AddrPort) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.String()+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(io.LimitReader(resp.Body, maxPageBytes))
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range bytes.Lines(page) {
		text := strings.TrimSpace(string(line))
		at := strings.LastIndexByte(text, ' ')
		if at <= 0 || text[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(text[at+1:], 64); err == nil {
			out[text[:at]] = v
		}
	}
	return out, nil
}

// awaitReady waits until every global node has every region up and answers DNS for each, and every gateway has answered both models.
func (t *target) awaitReady(ctx context.Context) error {
	var last error
	for ctx.Err() == nil {
		if last = t.checkReady(ctx); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return fmt.Errorf("%w; last: %w", ctx.Err(), last)
}

func (t *target) checkReady(ctx context.Context) error {
	for _, n := range t.globals {
		for i, region := range t.regions {
			r, err := t.queryDNS(ctx, n, i)
			if err != nil {
				return fmt.Errorf("DNS of %s: %w", n.ID(), err)
			}
			if r.region != region {
				return fmt.Errorf("%s sends clients of %s to %q", n.ID(), region, r.region)
			}
		}
	}
	key, err := t.files.ReadTenantKey(tenantNames[0])
	if err != nil {
		return err
	}
	for _, n := range t.files.NodesByRole("regional") {
		for _, model := range modelNames {
			if err := t.tryCompletion(ctx, n, key, model); err != nil {
				return fmt.Errorf("%s: %w", n.ID(), err)
			}
		}
	}
	return nil
}

func (t *target) tryCompletion(ctx context.Context, n fleet.Node, key, model string) error {
	body := fmt.Sprintf(`{"model":%q,"prompt":"one two three","max_tokens":1}`, model)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.Addr["http"].String()+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d for model %s: %w", resp.StatusCode, model, err)
	}
	return nil
}

// checkSecrets looks for the tenants' keys in the logs and the state of the fleet.
func (t *target) checkSecrets(events *eventQueue) {
	keys := map[string]string{}
	for _, name := range t.files.TenantNames() {
		if key, err := t.files.ReadTenantKey(name); err == nil && key != "" {
			keys[name] = key
		}
	}
	clean := 0
	for _, folder := range []string{"log", "state"} {
		_ = filepath.WalkDir(filepath.Join(t.files.Dir, folder), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil // a node may remove its files meanwhile
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			found := false
			for name, key := range keys {
				if bytes.Contains(text, []byte(key)) {
					found = true
					events.add(drill.Event{Kind: drill.SecretFound, Node: folder + "/" + d.Name(), Text: "the key of tenant " + name})
				}
			}
			if !found {
				clean++
			}
			return nil
		})
	}
	events.add(drill.Event{Kind: drill.SecretsChecked, Count: clean})
}
