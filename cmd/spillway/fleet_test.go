package main

import (
	"bytes"
	"context"
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

	"golang.org/x/net/dns/dnsmessage"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/geo"
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
	began := time.Now()
	for {
		err := f()
		took := time.Since(began)
		if err == nil {
			return took
		}
		if took > within {
			t.Fatalf("after %s, not yet: %s: %v", within, what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// waitUntilStable calls f for the whole bound, waits until it returns nil, and returns when f last failed.
func waitUntilStable(t *testing.T, bound time.Duration, what string, f func() error) time.Duration {
	t.Helper()
	began, last := time.Now(), time.Duration(0)
	for {
		err := f()
		took := time.Since(began)
		if err != nil {
			last = took
		}
		switch {
		case err == nil && took > bound:
			return last
		case took > testTimeout:
			t.Fatalf("after %s, not yet: %s: %v", testTimeout, what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
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
