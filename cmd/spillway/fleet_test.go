package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/uplink"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// testTimeout bounds steps without a bound of their own. It is generous because these tests run on busy machines.
const testTimeout = time.Minute

// writeTestFleet writes a fleet with free addresses, and its sockets, to a temporary folder.
func writeTestFleet(t *testing.T, zones, workers int) *fleet.Files {
	t.Helper()
	dir, err := os.MkdirTemp("", "spw") // short: a socket's path has room for about a hundred bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("SPILLWAY_SERVER", "")
	for range 50 {
		l := fleet.DefaultLayout()
		l.Zones, l.Workers = zones, workers
		l.Net, l.BasePort = 10+rand.IntN(80), 20000+rand.IntN(100)*100
		if !isLayoutFree(l) {
			continue
		}
		p, err := fleet.WriteFiles(filepath.Join(dir, "fleet"), l)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatal("no free addresses for a fleet were found in 50 tries")
	return nil
}

// isLayoutFree reports whether every address of a layout can be listened on.
func isLayoutFree(l fleet.Layout) bool {
	var open []io.Closer
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for _, n := range l.BuildNodes() {
		for _, a := range n.Addr {
			tcp, err := net.Listen("tcp", a.String())
			if err != nil {
				return false
			}
			udp, err := net.ListenPacket("udp", a.String())
			if open = append(open, tcp); err != nil {
				return false
			}
			open = append(open, udp)
		}
	}
	return true
}

// inProcessFleet is a fleet that runs in this process.
type inProcessFleet struct {
	*fleet.Files
	running *fleet.InProcess
	logs    *nodeLogs
}

// startInProcessFleet starts a fleet and waits until every tier is ready and every client is sent to its nearest region.
func startInProcessFleet(t *testing.T, zones, workers int) *inProcessFleet {
	t.Helper()
	w := &inProcessFleet{Files: writeTestFleet(t, zones, workers), logs: &nodeLogs{}}
	run, err := fleet.RunInProcess(context.Background(), w.Files, openRole, slog.New(slog.NewTextHandler(w.logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w.running = run
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := run.Stop(ctx); err != nil {
			t.Errorf("stopping the fleet: %v", err)
		}
		if t.Failed() {
			t.Logf("warnings and errors of the nodes:\n%s", w.logs.grepLines("level=(WARN|ERROR)", 60))
		}
	})
	waitForSuccess(t, testTimeout, "every node is ready", w.checkReady)
	waitForSuccess(t, testTimeout, "every client is sent to the nearest region", func() error { return w.checkSteering(nearestRegions()) })
	return w
}

// checkReady returns nil when every node is ready and every name server answers from the replicated spec.
func (w *inProcessFleet) checkReady() error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	for _, n := range w.Nodes {
		if n.Role == "worker" {
			continue
		}
		resp, err := client.Get(fmt.Sprintf("http://%s/readyz", n.Addr["metrics"]))
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", n.ID(), resp.Status)
		}
	}
	for _, server := range w.DNSAddrs() {
		if why, err := w.queryExplanation(server, clientSubnets()["virginia"]); err != nil || why.textValue("spec_version") != "1" {
			return fmt.Errorf("_why of %s is %q (%v)", server, why.texts, err)
		}
	}
	return nil
}

// nodeLogs stores the log lines of the nodes.
type nodeLogs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *nodeLogs) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

// grepLines returns at most the given number of lines that match.
func (j *nodeLogs) grepLines(pattern string, most int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	re := regexp.MustCompile(pattern)
	var out []string
	for line := range strings.Lines(j.b.String()) {
		if re.MatchString(line) && len(out) < most {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// clientSubnets returns a client network for each of the first three sites.
func clientSubnets() map[string]netip.Prefix {
	return map[string]netip.Prefix{
		"virginia":  netip.MustParsePrefix("192.0.2.0/26"),
		"frankfurt": netip.MustParsePrefix("198.51.100.0/26"),
		"tokyo":     netip.MustParsePrefix("203.0.113.0/26"),
	}
}

// nearestRegions returns, by the client's site, the region with the lowest RTT estimated from distance, except the regions in
// without.
func nearestRegions(without ...string) map[string]string {
	out := map[string]string{}
	for _, from := range fleet.AllSites()[:3] {
		var best time.Duration
		for _, to := range fleet.AllSites()[:3] {
			rtt := geo.PriorRTT(locationOf(from), locationOf(to))
			if strings.Contains(strings.Join(without, " "), to.Name) {
				continue
			}
			if out[from.Name] == "" || rtt < best {
				out[from.Name], best = to.Name, rtt
			}
		}
	}
	return out
}

func locationOf(s fleet.Site) geo.Location {
	return geo.Location{City: s.City, Country: s.Country, Lat: s.Lat, Lon: s.Lon}
}

// checkSteering returns nil when every name server sends each client's site to the wanted region, by address and by _why.
func (w *inProcessFleet) checkSteering(want map[string]string) error {
	for _, server := range w.DNSAddrs() {
		for from, subnet := range clientSubnets() {
			if err := w.checkSteeredAnswer(server, subnet, want[from]); err != nil {
				return fmt.Errorf("%s, for a client near %s: %w", server, from, err)
			}
		}
	}
	return nil
}

func (w *inProcessFleet) checkSteeredAnswer(server netip.AddrPort, subnet netip.Prefix, region string) error {
	a, err := queryDNS("udp", server, fleet.ServiceName, dnsmessage.TypeA, subnet)
	if err != nil {
		return err
	}
	why, err := w.queryExplanation(server, subnet)
	if err != nil {
		return err
	}
	if len(a.addrs) == 0 || a.addrs[0] != w.gatewayOf(region).Addr["http"].Addr() {
		return fmt.Errorf("%v %v, want the gateway of %s; _why is %q", a.rcode, a.addrs, region, why.texts)
	}
	if why.textValue("region") != region {
		return fmt.Errorf("_why is %q, want region %s", why.texts, region)
	}
	return nil
}

// queryExplanation queries the _why record of the service over TCP.
func (w *inProcessFleet) queryExplanation(server netip.AddrPort, subnet netip.Prefix) (dnsReply, error) {
	return queryDNS("tcp", server, "_why."+fleet.ServiceName, dnsmessage.TypeTXT, subnet)
}

func (w *inProcessFleet) gatewayOf(region string) fleet.Node {
	for _, n := range w.NodesByRole("regional") {
		if n.Region == region {
			return n
		}
	}
	return fleet.Node{}
}

// findWorker finds a worker by its path, region/zone/name.
func (w *inProcessFleet) findWorker(path string) (fleet.Node, bool) {
	for _, n := range w.NodesByRole("worker") {
		if n.Region+"/"+n.Zone+"/"+n.Name == path {
			return n, true
		}
	}
	return fleet.Node{}, false
}

// adminServerURL returns the --server value of a node's admin socket.
func adminServerURL(role, name string) string {
	return "unix://" + filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "spillway", role+"-"+name+".sock")
}

// waitForSuccess waits until f returns nil.
func waitForSuccess(t *testing.T, within time.Duration, what string, f func() error) time.Duration {
	t.Helper()
	return testkit.EventuallySucceeds(t, within, what, f)
}

// waitUntilStable calls f for the whole bound, waits until it returns nil, and returns when f last failed.
func waitUntilStable(t *testing.T, bound time.Duration, what string, f func() error) time.Duration {
	t.Helper()
	began, last := time.Now(), time.Duration(0)
	testkit.EventuallySucceeds(t, testTimeout, what, func() error {
		err := f()
		took := time.Since(began)
		if err != nil {
			last = took
			return err
		}
		if took <= bound {
			return fmt.Errorf("holds, and %s have not passed", bound)
		}
		return nil
	})
	return last
}

// readSample reads one value from a metrics page: that of the line that begins with prefix.
func readSample(page, prefix string) (float64, error) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, prefix) {
			f := strings.Fields(line)
			return strconv.ParseFloat(f[len(f)-1], 64)
		}
	}
	return 0, fmt.Errorf("no sample %s", prefix)
}

// testWrongCertificates connects with wrong certificates: each is refused, counted and logged once.
func (w *inProcessFleet) testWrongCertificates(t *testing.T) {
	dir := t.TempDir()
	foreign := w.issueForeignCert(t, dir)
	local := w.loadFleetCert(t, "virginia-a-virginia-a-local1")
	operator := w.loadFleetCert(t, "operator")

	g1 := w.NodesByRole("global")[0]
	for name, certs := range map[string]*identity.Certs{"a foreign authority's": foreign, "a local's": local} {
		w.expectRefused(t, name+" certificate at a global's uplink", g1.Addr["metrics"], `spillway_global_refused_total{listener="uplink"}`, func() error {
			return tryUplink(t, certs, g1.Addr["uplink"], identity.RoleGlobal)
		})
	}
	for name, certs := range map[string]*identity.Certs{"a foreign authority's": foreign, "a local's": local, "an operator's": operator} {
		for _, alpn := range []string{"spillway-raft/1", "spillway-propose/1"} {
			w.expectRefused(t, name+" certificate at "+alpn, g1.Addr["metrics"], `spillway_global_refused_total{listener="raft"}`, func() error {
				return tryHandshake(certs, g1.Addr["raft"], alpn)
			})
		}
	}
	if n := strings.Count(w.logs.grepLines(`level=WARN.*refused.*region/virginia/zone/a/local`, 100), "\n"); n == 0 || n > 3 {
		t.Errorf("a local instance at the wrong listener is logged %d times, want once for each listener", n)
	}
}

// issueForeignCert issues a gateway's certificate from a CA that the fleet does not trust. Its holder trusts the fleet's CA.
func (w *inProcessFleet) issueForeignCert(t *testing.T, dir string) *identity.Certs {
	t.Helper()
	ca, err := identity.NewDevCA(dir, "spillway.test")
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.IssueCert(identity.ID{TrustDomain: "spillway.test", Role: identity.RoleGateway, Region: "virginia", Name: "mallory"}, dir, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(dir, "both.pem")
	ours, err := os.ReadFile(filepath.Join(w.Dir, "certs", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(both, bytes.Join([][]byte{ours, theirs}, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	certs, err := identity.LoadCerts(identity.CertFiles{Cert: files.Cert, Key: files.Key, CA: both}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// loadFleetCert loads one of the fleet's certificates.
func (w *inProcessFleet) loadFleetCert(t *testing.T, name string) *identity.Certs {
	t.Helper()
	at := func(file string) string { return filepath.Join(w.Dir, "certs", file) }
	certs, err := identity.LoadCerts(identity.CertFiles{Cert: at(name + ".pem"), Key: at(name + ".key"), CA: at("ca.pem")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return certs
}

// expectRefused calls connect, which must fail, and waits until the counter has increased.
func (w *inProcessFleet) expectRefused(t *testing.T, what string, metrics netip.AddrPort, counter string, connect func() error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	count := func() float64 {
		page, err := fetchPage(client, fmt.Sprintf("http://%s/metrics", metrics))
		if err != nil {
			t.Fatal(err)
		}
		n, err := readSample(page, counter)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	err := connect()
	if err == nil {
		t.Errorf("%s is accepted", what)
	}
	t.Logf("%s: %v", what, err)
	waitForSuccess(t, testTimeout, what+" is counted as refused", func() error {
		if now := count(); now <= before {
			return fmt.Errorf("still %v", now)
		}
		return nil
	})
}

// tryUplink opens an uplink session to a parent and returns the error.
func tryUplink(t *testing.T, certs *identity.Certs, parent netip.AddrPort, role identity.Role) error {
	t.Helper()
	c, err := uplink.NewChild(uplink.ChildConfig{
		Certs: certs, Parents: []string{parent.String()}, ParentRole: role,
		BuildSummary: func(time.Time) capacity.Summary { return capacity.Summary{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	untried := c.Sessions()[0].Err
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stopping a refused child: %v", err)
		}
	}()
	var why error
	waitForSuccess(t, testTimeout, "the parent answers", func() error {
		s := c.Sessions()[0]
		if why = s.Err; !s.Connected && errors.Is(why, untried) {
			return errors.New("neither let in nor refused")
		}
		return nil
	})
	return why
}

// tryHandshake makes a TLS handshake and returns the error of the first read: in TLS 1.3 the client's handshake is complete
// before the server verifies the client's certificate.
func tryHandshake(certs *identity.Certs, addr netip.AddrPort, alpn string) error {
	c, err := tls.Dial("tcp", addr.String(), certs.ClientTLS(alpn, func(identity.ID) error { return nil }))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}
