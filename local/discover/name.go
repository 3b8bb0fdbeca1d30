package discover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/spillway-lb/spillway/internal/config"
)

const (
	// roundTimeout bounds all lookups for one name; what was not reached stays as it was.
	roundTimeout = 20 * time.Second
	// firstRetry is the wait after a failed lookup; it doubles up to the interval.
	firstRetry = time.Second
	// maxTargets bounds the targets of SRV records that are looked up.
	maxTargets = 256
)

// name is a name in DNS whose addresses are workers.
type name struct {
	cfg      config.DNSName
	interval time.Duration
	grace    time.Duration
	lookup   func(context.Context, question) ([]record, error)
	put      func([]Worker)
	log      *slog.Logger

	tracks map[question]*track
	barred map[netip.Addr]bool // left out, and that is logged

	mu     sync.Mutex // guards what Stats reads
	counts map[string]float64
	oldest time.Duration
}

func newName(d *config.Discover, i int, log *slog.Logger, put func([]Worker)) *name {
	n := &name{
		cfg: d.DNS[i], interval: cmp.Or(d.Interval, 10*time.Second), grace: cmp.Or(d.Grace, 2*time.Minute),
		lookup: (&resolver{server: d.Resolver}).lookup, put: put, log: log.With("name", d.DNS[i].Name),
		tracks: map[question]*track{}, barred: map[netip.Addr]bool{}, counts: map[string]float64{},
	}
	n.cfg.Weight, n.cfg.Scheme, n.cfg.Prefix = cmp.Or(n.cfg.Weight, 1), cmp.Or(n.cfg.Scheme, "http"), cmp.Or(n.cfg.Prefix, "dns")
	return n
}

// run looks the name up until ctx ends.
func (n *name) run(ctx context.Context) {
	retry := firstRetry
	for {
		ws, ok := n.round(ctx)
		if ctx.Err() != nil {
			return
		}
		n.put(ws)
		wait := n.interval
		if !ok {
			wait = min(retry, n.interval)
			retry = 2 * wait
		} else {
			retry = firstRetry
		}
		t := time.NewTimer(time.Duration(float64(wait) * (0.9 + 0.2*rand.Float64())))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// round asks once for everything that the name stands for; false when a lookup has failed.
func (n *name) round(ctx context.Context) ([]Worker, bool) {
	round, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	for _, t := range n.tracks {
		t.used = false
	}
	var ws []Worker
	if n.cfg.Type == config.TypeSRV {
		ws = n.services(round)
	} else {
		for _, a := range n.addresses(round, n.cfg.Name) {
			ws = append(ws, n.worker(a, uint16(n.cfg.Port), n.cfg.Name, n.cfg.Weight))
		}
	}
	if len(ws) > maxRecords {
		ws = ws[:maxRecords]
	}
	return ws, n.settle()
}

// settle forgets questions that are no longer asked, and says whether none of the others fails.
func (n *name) settle() bool {
	now, ok, oldest := time.Now(), true, time.Duration(0)
	for q, t := range n.tracks {
		if !t.used {
			delete(n.tracks, q)
			continue
		}
		ok = ok && !t.failing
		oldest = max(oldest, t.kept(now))
	}
	n.mu.Lock()
	n.oldest = oldest
	n.mu.Unlock()
	return ok
}

// services are the workers behind SRV records: those of the first priority of which any target has an address.
func (n *name) services(ctx context.Context) []Worker {
	var ws []Worker
	seen := map[string]bool{}
	recs := n.ask(ctx, n.cfg.Name, dnsmessage.TypeSRV)
	for i, r := range recs[:min(len(recs), maxTargets)] {
		if i > 0 && r.priority != recs[i-1].priority && len(ws) > 0 {
			break
		}
		for _, a := range n.addresses(ctx, r.target) {
			w := n.worker(a, r.port, r.target, n.cfg.Weight*float64(min(max(r.weight, 1), 1000)))
			w.Weight = min(w.Weight, 1000)
			if !seen[w.Name] { // two targets may be names of one machine
				seen[w.Name] = true
				ws = append(ws, w)
			}
		}
	}
	return ws
}

// addresses are those that a worker may have, of both families.
func (n *name) addresses(ctx context.Context, host string) []netip.Addr {
	var out []netip.Addr
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		for _, r := range n.ask(ctx, host, kind) {
			if !Forbidden(r.addr) {
				out = append(out, r.addr)
			} else if !n.barred[r.addr] && len(n.barred) < maxRecords {
				n.barred[r.addr] = true
				n.log.Warn("address left out: no worker may be there", "address", r.addr.String(), "host", host)
			}
		}
	}
	return out
}

// ask looks one question up and gives what is to be believed of it now.
func (n *name) ask(ctx context.Context, host string, kind dnsmessage.Type) []record {
	q := question{name: strings.ToLower(strings.TrimSuffix(host, ".")) + ".", kind: kind}
	t := n.tracks[q]
	if t == nil {
		t = &track{}
		n.tracks[q] = t
	}
	if t.used { // two records may have one target
		return t.records
	}
	t.used = true
	recs, err := n.lookup(ctx, q)
	if errors.Is(ctx.Err(), context.Canceled) { // stopping
		return t.records
	}
	n.count(recs, err)
	what := t.learn(recs, err, n.grace, time.Now())
	n.tell(q, what, len(t.records), err)
	return t.records
}

func (n *name) count(recs []record, err error) {
	outcome := "ok"
	var e *lookupError
	switch {
	case errors.As(err, &e):
		outcome = e.outcome
	case err != nil:
		outcome = "unreachable"
	case len(recs) == 0:
		outcome = "empty"
	}
	n.mu.Lock()
	n.counts[outcome]++
	n.mu.Unlock()
}

// tell logs what changed.
func (n *name) tell(q question, what news, kept int, err error) {
	log := n.log.With("question", q.name+" "+strings.TrimPrefix(q.kind.String(), "Type"))
	switch {
	case what == failed && kept > 0:
		log.Warn("DNS lookups fail, the last good answer stays in force", "records", kept, "error", err)
	case what == failed:
		log.Warn("DNS lookups fail", "error", err)
	case what == emptied:
		log.Warn("DNS answers without any record, the last good answer stays in force for the grace", "records", kept, "grace", n.grace)
	case what == gave:
		log.Warn("DNS has answered without any record for the whole grace: its workers are gone")
	case what == mended:
		log.Info("DNS answers again", "records", kept)
	}
}

// worker is the one at an address. Its name is made of the address, so that its metrics go on when it comes back.
func (n *name) worker(a netip.Addr, port uint16, host string, weight float64) Worker {
	at := netip.AddrPortFrom(a, port)
	w := Worker{
		Name: n.cfg.Prefix + "-" + dashed(a) + "-" + strconv.Itoa(int(port)), URL: n.cfg.Scheme + "://" + at.String(),
		GPU: n.cfg.GPU, Models: n.cfg.Models, Weight: weight, Engine: n.cfg.Engine, Wake: n.cfg.Wake, MaxModels: n.cfg.MaxModels, Labels: n.cfg.Labels,
	}
	w.SetAccess(n.cfg.Access())
	if n.cfg.Scheme == "https" {
		w.ServerName = strings.TrimSuffix(host, ".")
	}
	page := func(port int) string {
		if port == 0 {
			return ""
		}
		return fmt.Sprintf("http://%s/metrics", netip.AddrPortFrom(a, uint16(port)))
	}
	w.Metrics, w.GPUMetrics = page(n.cfg.MetricsPort), page(n.cfg.GPUMetricsPort)
	stream := func(port int) []string {
		if port == 0 {
			return nil
		}
		return []string{"tcp://" + netip.AddrPortFrom(a, uint16(port)).String()}
	}
	w.KVEvents, w.KVReplay = stream(n.cfg.KVEventsPort), stream(n.cfg.KVReplayPort)
	return w
}

// dashed is an address as a part of a name.
func dashed(a netip.Addr) string {
	if a.Is4() {
		return strings.ReplaceAll(a.String(), ".", "-")
	}
	return strings.ReplaceAll(a.WithZone("").StringExpanded(), ":", "-")
}
