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

// patience is how long anything may take that has no bound of its own: these tests run on busy machines.
const patience = 30 * time.Second

// lay writes a planet to a folder of its own, at addresses that are free, with its sockets beside it.
func lay(t *testing.T, zones, workers int) *fleet.Planet {
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
		if !free(l) {
			continue
		}
		p, err := fleet.Write(filepath.Join(dir, "planet"), l)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	t.Fatal("no free addresses for a planet were found in 50 tries")
	return nil
}

// free reports whether every address of a layout can be listened on.
func free(l fleet.Layout) bool {
	var open []io.Closer
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for _, n := range l.Nodes() {
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

// world is a planet that runs in this process.
type world struct {
	*fleet.Planet
	run *fleet.Running
	log *journal
}

// wake starts a planet and waits until every tier is ready and every client is sent to the region beside it.
func wake(t *testing.T, zones, workers int) *world {
	t.Helper()
	w := &world{Planet: lay(t, zones, workers), log: &journal{}}
	run, err := fleet.Run(context.Background(), w.Planet, openRole, slog.New(slog.NewTextHandler(w.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w.run = run
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := run.Stop(ctx); err != nil {
			t.Errorf("stopping the planet: %v", err)
		}
		if t.Failed() {
			t.Logf("warnings and errors of the nodes:\n%s", w.log.grep("level=(WARN|ERROR)", 60))
		}
	})
	eventually(t, patience, "every node is ready", w.ready)
	eventually(t, patience, "every client is sent to the region beside it", func() error { return w.steered(places()) })
	return w
}

// ready is nil when every node says that it can do its work and every name server answers from the agreed spec.
func (w *world) ready() error {
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
	for _, server := range w.DNS() {
		if why, err := w.why(server, subnets()["virginia"]); err != nil || why.text("spec_version") != "1" {
			return fmt.Errorf("%s says %q (%v)", server, why.texts, err)
		}
	}
	return nil
}

// journal keeps what the nodes log.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

// grep returns at most the given number of lines that match.
func (j *journal) grep(pattern string, most int) string {
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

// subnets are client networks that pose as each of the first three sites.
func subnets() map[string]netip.Prefix {
	return map[string]netip.Prefix{
		"virginia":  netip.MustParsePrefix("192.0.2.0/26"),
		"frankfurt": netip.MustParsePrefix("198.51.100.0/26"),
		"tokyo":     netip.MustParsePrefix("203.0.113.0/26"),
	}
}

// places says for each client's site which region it should be sent to while every region is well, or while those
// named are not: the nearest by the round trip that distance predicts.
func places(without ...string) map[string]string {
	out := map[string]string{}
	for _, from := range fleet.Sites()[:3] {
		var best time.Duration
		for _, to := range fleet.Sites()[:3] {
			rtt := geo.RTT(placeOf(from), placeOf(to))
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

func placeOf(s fleet.Site) geo.Place {
	return geo.Place{City: s.City, Country: s.Country, Lat: s.Lat, Lon: s.Lon}
}

// steered is nil when every name server sends each client's site to the region wanted, by address and by its own
// account.
func (w *world) steered(want map[string]string) error {
	for _, server := range w.DNS() {
		for from, subnet := range subnets() {
			if err := w.sends(server, subnet, want[from]); err != nil {
				return fmt.Errorf("%s, asked for a client beside %s: %w", server, from, err)
			}
		}
	}
	return nil
}

func (w *world) sends(server netip.AddrPort, subnet netip.Prefix, region string) error {
	a, err := ask("udp", server, fleet.Service, dnsmessage.TypeA, subnet)
	if err != nil {
		return err
	}
	why, err := w.why(server, subnet)
	if err != nil {
		return err
	}
	if len(a.addrs) == 0 || a.addrs[0] != w.gateway(region).Addr["http"].Addr() {
		return fmt.Errorf("%v %v, want the gateway of %s; _why says %q", a.rcode, a.addrs, region, why.texts)
	}
	if why.text("region") != region {
		return fmt.Errorf("_why says %q, want region %s", why.texts, region)
	}
	return nil
}

// why asks a name server over TCP for the reasons of an answer.
func (w *world) why(server netip.AddrPort, subnet netip.Prefix) (reply, error) {
	return ask("tcp", server, "_why."+fleet.Service, dnsmessage.TypeTXT, subnet)
}

func (w *world) gateway(region string) fleet.Node {
	for _, n := range w.Of("regional") {
		if n.Region == region {
			return n
		}
	}
	return fleet.Node{}
}

// worker finds a worker by its path, region/zone/name.
func (w *world) worker(path string) (fleet.Node, bool) {
	for _, n := range w.Of("worker") {
		if n.Region+"/"+n.Zone+"/"+n.Name == path {
			return n, true
		}
	}
	return fleet.Node{}, false
}

// socket is the --server of a node's admin interface.
func socket(role, name string) string {
	return "unix://" + filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "spillway", role+"-"+name+".sock")
}

// eventually waits until f is nil.
func eventually(t *testing.T, within time.Duration, what string, f func() error) time.Duration {
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

// settles waits until f is nil for good: it looks on for the whole bound and returns when f last failed.
func settles(t *testing.T, bound time.Duration, what string, f func() error) time.Duration {
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
		case took > patience:
			t.Fatalf("after %s, not yet: %s: %v", patience, what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// inTime tries something with a bound of its own up to three times, for a machine that is busy with something else: the
// best try must be in time.
func inTime(t *testing.T, bound time.Duration, what string, try func() time.Duration) {
	t.Helper()
	var took []time.Duration
	for range 3 {
		d := try()
		if took = append(took, d); d <= bound {
			t.Logf("%s: %v, at most %s is promised", what, took, bound)
			return
		}
	}
	t.Errorf("%s took %v, at most %s is promised", what, took, bound)
}

// sample reads one value from a page of metrics: the line that begins with prefix.
func sample(page, prefix string) (float64, error) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, prefix) {
			f := strings.Fields(line)
			return strconv.ParseFloat(f[len(f)-1], 64)
		}
	}
	return 0, fmt.Errorf("no sample %s", prefix)
}
