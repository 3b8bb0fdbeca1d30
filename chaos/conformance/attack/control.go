package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func controlAttacks() []attackCase {
	return []attackCase{
		{"strangers at the Raft port", "global F6", holdRaftConnections},
		{"a spec with 65 gateways in a region", "global F4", addTooManyGateways},
		{"a spec of 256 equal regions", "global F9", addEqualRegions},
		{"cross-site change of state", "global F11", postCrossSite},
		{"admin without a certificate", "DESIGN 9", connectWithoutCertificate},
		{"a forged redirect ticket", "DESIGN 9", sendForgedTicket},
		{"malformed DNS", "DESIGN 9", sendMalformedDNS},
	}
}

// runAdmin runs an operator's command against the first global node.
func (t *targetFleet) runAdmin(ctx context.Context, args ...string) (string, error) {
	return t.runCommand(ctx, append(args, "--server", "unix://"+t.fleet.NodesByRole("global")[0].AdminSocket())...)
}

// holdRaftConnections holds 200 connections open at every node's Raft port, without a byte, and has an operator write.
func holdRaftConnections(ctx context.Context, t *targetFleet) (string, error) {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for _, n := range t.fleet.NodesByRole("global") {
		for range 200 {
			c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", n.Addr["raft"].String())
			if err == nil {
				open = append(open, c)
			}
		}
	}
	began := time.Now()
	const writes = 6
	for i := range writes {
		node := t.fleet.NodesByRole("global")[i%3]
		verb := []string{"drain", "undrain"}[i%2]
		args := []string{verb, "region", t.fleet.NodesByRole("regional")[1].Region, "--server", "unix://" + node.AdminSocket()}
		if out, err := t.runCommand(ctx, args...); err != nil {
			return "", fmt.Errorf("write %d at %s with %d idle connections open: %w: %s", i+1, node.Name, len(open), err, out)
		}
	}
	return fmt.Sprintf("%d idle connections opened; %d writes by all three nodes took %.1f s", len(open), writes, time.Since(began).Seconds()), nil
}

// applySpec writes a spec and has it applied; refused is what must be in the refusal, empty when it must pass a dry run.
func (t *targetFleet) applySpec(ctx context.Context, text string, args ...string) (string, error) {
	path := filepath.Join(t.fleet.Dir, "attack.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", err
	}
	return t.runAdmin(ctx, append([]string{"apply", "-f", path}, args...)...)
}

// startSpec is the spec that the fleet was started with.
func (t *targetFleet) startSpec() (string, error) {
	b, err := os.ReadFile(t.fleet.SpecPath())
	return string(b), err
}

func addTooManyGateways(ctx context.Context, t *targetFleet) (string, error) {
	text, err := t.startSpec()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range 65 {
		fmt.Fprintf(&b, "      - {name: extra%d, addresses: [127.0.90.1], url: \"http://127.0.90.1:%d\"}\n", i, 9000+i)
	}
	out, err := t.applySpec(ctx, strings.Replace(text, "    gateways:\n", "    gateways:\n"+b.String(), 1))
	if err == nil {
		return "", fmt.Errorf("the spec was applied: %s", firstLine(out))
	}
	if !strings.Contains(out, "gateways") || strings.Contains(out, "panic") {
		return "", fmt.Errorf("the refusal does not name the gateways: %s", firstLine(out))
	}
	return "refused where it enters: " + firstLine(out), nil
}

func addEqualRegions(ctx context.Context, t *targetFleet) (string, error) {
	text, err := t.startSpec()
	if err != nil {
		return "", err
	}
	var regions, weights strings.Builder
	for i := range 254 {
		fmt.Fprintf(&regions, "  - {name: r%d, place: {city: X, lat: %d, lon: %d}, zones: [a], gateways: [{name: r%d-gw1, addresses: [127.0.91.%d], url: \"http://127.0.91.%d:8080\"}]}\n",
			i, i%80, i%170, i, i+1, i+1)
		fmt.Fprintf(&weights, ", r%d: 1", i)
	}
	text = strings.Replace(text, "\nregions:\n", "\nregions:\n"+regions.String(), 1)
	text = strings.Replace(text, "    ttl: 5s\n", "    ttl: 5s\n    mode: weighted\n    weights: {virginia: 1, frankfurt: 1"+weights.String()+"}\n", 1)
	out, err := t.applySpec(ctx, text, "--dry-run")
	if strings.Contains(out, "panic") || strings.Contains(out, "index out of range") {
		return "", fmt.Errorf("a node panics: %s", firstLine(out))
	}
	if err != nil {
		return "a dry run is refused: " + firstLine(out), nil
	}
	return "a dry run passes and no node panics", nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line[:min(len(line), 160)]
}

// postCrossSite posts a drain as a page of another site would: text/plain, with a foreign Origin.
func postCrossSite(ctx context.Context, t *targetFleet) (string, error) {
	c := socketClient(t.fleet.NodesByRole("global")[0].AdminSocket())
	body, err := json.Marshal(map[string]any{"region": "frankfurt", "reason": "attack"})
	if err != nil {
		return "", err
	}
	tried := 0
	for _, h := range [][]string{
		{"Origin", "https://evil.example", "Content-Type", "text/plain"},
		{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "cross-site", "Content-Type", "application/x-www-form-urlencoded"},
		{"Content-Type", "text/plain"},
	} {
		got, err := t.sendRequest(ctx, c, http.MethodPost, "http://admin/v1/drains", "", strings.NewReader(string(body)), h...)
		if err != nil {
			return "", err
		}
		if got.status < 400 || got.status >= 500 {
			return "", fmt.Errorf("POST /v1/drains with %v is answered with %d: %.200s", h, got.status, got.body)
		}
		tried++
	}
	out, err := t.runAdmin(ctx, "get", "drains")
	if err != nil {
		return "", fmt.Errorf("get drains: %w: %s", err, out)
	}
	if strings.Contains(out, "attack") {
		return "", errors.New("a region is drained")
	}
	return fmt.Sprintf("%d requests: 4xx, nothing drained", tried), nil
}

// connectWithoutCertificate asks every TLS listener between the tiers without a certificate of the fleet.
func connectWithoutCertificate(ctx context.Context, t *targetFleet) (string, error) {
	tried := 0
	for _, n := range t.fleet.Nodes {
		for _, purpose := range []string{"peer", "raft", "http"} {
			if _, ok := n.Addr[purpose]; !ok || n.Role == "worker" || purpose == "http" && n.Role != "local" {
				continue
			}
			d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 2 * time.Second}, Config: &tls.Config{InsecureSkipVerify: true}}
			conn, err := d.DialContext(ctx, "tcp", n.Addr[purpose].String())
			if err == nil {
				_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
				_, err = fmt.Fprint(conn, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
				if err == nil {
					var b [64]byte
					var k int
					if k, err = conn.Read(b[:]); err == nil && strings.Contains(string(b[:k]), " 200 ") {
						conn.Close()
						return "", fmt.Errorf("%s of %s answers a stranger: %s", purpose, n.Name, b[:k])
					}
				}
				conn.Close()
			}
			tried++
		}
	}
	return fmt.Sprintf("%d listeners refuse a client without a certificate", tried), nil
}

func sendForgedTicket(ctx context.Context, t *targetFleet) (string, error) {
	tickets := []string{"", "AAAA", strings.Repeat("A", 200), "../../../../etc/passwd", strings.Repeat("%00", 40)}
	for _, ticket := range tickets {
		got, err := t.postJSON(ctx, t.gateway+"/v1/chat/completions?spw="+ticket, "", chatBody("x", 8))
		if err != nil {
			return "", err
		}
		if got.status != http.StatusUnauthorized && got.status != http.StatusBadRequest {
			return "", fmt.Errorf("ticket %.20q is answered with %d: %.200s", ticket, got.status, got.body)
		}
	}
	if n := t.countRequests(); n > 0 {
		return "", fmt.Errorf("%d requests reached a worker", n)
	}
	return fmt.Sprintf("%d tickets refused", len(tickets)), nil
}

// sendMalformedDNS sends packets that are no queries, and has the name resolved afterwards by each node.
func sendMalformedDNS(ctx context.Context, t *targetFleet) (string, error) {
	packets := [][]byte{
		{},
		{0},
		make([]byte, 11), make([]byte, 12), []byte(strings.Repeat("\xff", 512)), []byte(strings.Repeat("\x00", 4000)),
		append([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"), "\xc0\x0c\x00\x01\x00\x01"...),
		append([]byte("\x12\x34\x01\x00\xff\xff\x00\x00\x00\x00\x00\x00"), "\x04chat\x00\x00\x01\x00\x01"...),
		append([]byte("\x12\x34\x84\x00\x00\x01\x00\x00\x00\x00\x00\x00"), "\x04chat\x00\x00\x01\x00\x01"...),
	}
	largest := 0
	for _, addr := range t.fleet.DNSAddrs() {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", addr.String())
		if err != nil {
			return "", err
		}
		for _, p := range packets {
			if _, err := conn.Write(p); err != nil {
				conn.Close()
				return "", err
			}
			_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			var b [4096]byte
			if n, err := conn.Read(b[:]); err == nil {
				largest = max(largest, n-len(p))
			}
		}
		conn.Close()
		r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr.String())
		}}
		if ips, err := r.LookupHost(ctx, "chat.spillway.test."); err != nil || len(ips) == 0 {
			return "", fmt.Errorf("%s answers no more: %v, %w", addr, ips, err)
		}
	}
	if largest > 0 {
		return "", fmt.Errorf("an answer is %d bytes longer than its malformed query", largest)
	}
	return fmt.Sprintf("%d packets to each of %d nodes; no answer was longer than its query, and all still answer", len(packets), len(t.fleet.DNSAddrs())), nil
}
