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

	"github.com/spillway-lb/spillway/internal/backoff"
	"github.com/spillway-lb/spillway/internal/config"
)

const (
	// lookupRoundTimeout bounds all lookups for one name; those not done keep their last result.
	lookupRoundTimeout = 20 * time.Second
	// minLookupRetry is the wait after a failed lookup; it doubles up to the interval.
	minLookupRetry = time.Second
	// maxTargets bounds the targets of SRV records that are looked up.
	maxTargets = 256
)

// dnsName is a DNS name whose addresses are workers.
type dnsName struct {
	cfg       config.DNSDiscovery
	interval  time.Duration
	grace     time.Duration
	lookup    func(context.Context, dnsQuestion) ([]dnsRecord, error)
	onWorkers func([]Worker)
	log       *slog.Logger

	tracks       map[dnsQuestion]*recordCache
	refusedAddrs map[netip.Addr]bool // left out and logged

	mu            sync.Mutex // guards what Stats reads
	outcomeCounts map[string]float64
	oldestStale   time.Duration
}

func newDNSName(d *config.Discovery, i int, log *slog.Logger, put func([]Worker)) *dnsName {
	n := &dnsName{
		cfg: d.DNS[i], interval: cmp.Or(d.Interval, 10*time.Second), grace: cmp.Or(d.Grace, 2*time.Minute),
		lookup: (&dnsResolver{server: d.Resolver}).lookupQuestion, onWorkers: put, log: log.With("name", d.DNS[i].Name),
		tracks: map[dnsQuestion]*recordCache{}, refusedAddrs: map[netip.Addr]bool{}, outcomeCounts: map[string]float64{},
	}
	n.cfg.Weight, n.cfg.Scheme, n.cfg.Prefix = cmp.Or(n.cfg.Weight, 1), cmp.Or(n.cfg.Scheme, "http"), cmp.Or(n.cfg.Prefix, "dns")
	return n
}

// lookupUntilDone looks the name up periodically until ctx ends.
func (n *dnsName) lookupUntilDone(ctx context.Context) {
	retries := backoff.Doubling{First: minLookupRetry, Longest: n.interval}
	for {
		ws, ok := n.lookupWorkers(ctx)
		if ctx.Err() != nil {
			return
		}
		n.onWorkers(ws)
		wait := n.interval
		if !ok {
			wait = retries.NextDelay()
		} else {
			retries.Reset()
		}
		t := time.NewTimer(backoff.SpreadAround(wait, 0.1, rand.Float64()))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// lookupWorkers looks up all workers of the name; false when a lookup failed.
func (n *dnsName) lookupWorkers(ctx context.Context) ([]Worker, bool) {
	round, cancel := context.WithTimeout(ctx, lookupRoundTimeout)
	defer cancel()
	for _, t := range n.tracks {
		t.usedThisRound = false
	}
	var ws []Worker
	if n.cfg.Type == config.TypeSRV {
		ws = n.lookupServices(round)
	} else {
		for _, a := range n.lookupAddresses(round, n.cfg.Name) {
			ws = append(ws, n.workerAt(a, uint16(n.cfg.Port), n.cfg.Name, n.cfg.Weight))
		}
	}
	if len(ws) > maxRecords {
		ws = ws[:maxRecords]
	}
	return ws, n.finishRound()
}

// finishRound drops questions that are no longer used, and reports whether all others succeeded.
func (n *dnsName) finishRound() bool {
	now, ok, oldest := time.Now(), true, time.Duration(0)
	for q, t := range n.tracks {
		if !t.usedThisRound {
			delete(n.tracks, q)
			continue
		}
		ok = ok && !t.failing
		oldest = max(oldest, t.staleFor(now))
	}
	n.mu.Lock()
	n.oldestStale = oldest
	n.mu.Unlock()
	return ok
}

// lookupServices returns the workers behind SRV records: those of the lowest priority value with an address for any
// target.
func (n *dnsName) lookupServices(ctx context.Context) []Worker {
	var ws []Worker
	seen := map[string]bool{}
	recs := n.lookupRecords(ctx, n.cfg.Name, dnsmessage.TypeSRV)
	for i, r := range recs[:min(len(recs), maxTargets)] {
		if i > 0 && r.priority != recs[i-1].priority && len(ws) > 0 {
			break
		}
		for _, a := range n.lookupAddresses(ctx, r.target) {
			w := n.workerAt(a, r.port, r.target, n.cfg.Weight*float64(min(max(r.weight, 1), 1000)))
			w.Weight = min(w.Weight, 1000)
			if !seen[w.Name] { // two targets may be names of one machine
				seen[w.Name] = true
				ws = append(ws, w)
			}
		}
	}
	return ws
}

// lookupAddresses returns the allowed addresses of a host, of both families.
func (n *dnsName) lookupAddresses(ctx context.Context, host string) []netip.Addr {
	var out []netip.Addr
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		for _, r := range n.lookupRecords(ctx, host, kind) {
			if !IsForbiddenAddr(r.addr) {
				out = append(out, r.addr)
			} else if !n.refusedAddrs[r.addr] && len(n.refusedAddrs) < maxRecords {
				n.refusedAddrs[r.addr] = true
				n.log.Warn("address ignored: workers are not allowed there", "address", r.addr.String(), "host", host)
			}
		}
	}
	return out
}

// lookupRecords looks one question up and returns the records in force.
func (n *dnsName) lookupRecords(ctx context.Context, host string, kind dnsmessage.Type) []dnsRecord {
	q := dnsQuestion{name: strings.ToLower(strings.TrimSuffix(host, ".")) + ".", kind: kind}
	t := n.tracks[q]
	if t == nil {
		t = &recordCache{}
		n.tracks[q] = t
	}
	if t.usedThisRound { // two records may have the same target
		return t.records
	}
	t.usedThisRound = true
	recs, err := n.lookup(ctx, q)
	if errors.Is(ctx.Err(), context.Canceled) { // shutting down
		return t.records
	}
	n.countOutcome(recs, err)
	what := t.applyLookup(recs, err, n.grace, time.Now())
	n.logChange(q, what, len(t.records), err)
	return t.records
}

func (n *dnsName) countOutcome(recs []dnsRecord, err error) {
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
	n.outcomeCounts[outcome]++
	n.mu.Unlock()
}

// logChange logs a change of the state.
func (n *dnsName) logChange(q dnsQuestion, what cacheChange, kept int, err error) {
	log := n.log.With("question", q.name+" "+strings.TrimPrefix(q.kind.String(), "Type"))
	switch {
	case what == changeFailing && kept > 0:
		log.Warn("DNS lookups fail, the last good answer stays in force", "records", kept, "error", err)
	case what == changeFailing:
		log.Warn("DNS lookups fail", "error", err)
	case what == changeEmpty:
		log.Warn("DNS answers without any record, the last good answer stays in force for the grace", "records", kept, "grace", n.grace)
	case what == changeGraceOver:
		log.Warn("DNS answers had no record for the whole grace period: the name's workers are removed")
	case what == changeRecovered:
		log.Info("DNS answers again", "records", kept)
	}
}

// workerAt is the worker at an address. Its name contains the address, so that its metrics continue when it returns.
func (n *dnsName) workerAt(a netip.Addr, port uint16, host string, weight float64) Worker {
	at := netip.AddrPortFrom(a, port)
	w := Worker{
		Name: n.cfg.Prefix + "-" + dashedAddr(a) + "-" + strconv.Itoa(int(port)), URL: n.cfg.Scheme + "://" + at.String(),
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

// dashedAddr formats an address as a part of a name.
func dashedAddr(a netip.Addr) string {
	if a.Is4() {
		return strings.ReplaceAll(a.String(), ".", "-")
	}
	return strings.ReplaceAll(a.WithZone("").StringExpanded(), ":", "-")
}
