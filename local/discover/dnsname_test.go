package discover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/config"
)

// fakeDNS is the DNS of a test.
type fakeDNS struct {
	mu       sync.Mutex
	records  map[string][]dnsRecord // "name TypeA"
	failures map[string]string      // outcome
}

func (z *fakeDNS) setRecords(q string, addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	var out []dnsRecord
	for _, a := range addrs {
		out = append(out, dnsRecord{addr: netip.MustParseAddr(a)})
	}
	z.records[q] = out
}

func (z *fakeDNS) failLookups(q, outcome string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.failures[q] = outcome
}

func (z *fakeDNS) lookupQuestion(_ context.Context, q dnsQuestion) ([]dnsRecord, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	key := q.name + " " + q.kind.String()
	if f := z.failures[key]; f != "" {
		return nil, &lookupError{f, errors.New(f)}
	}
	return slices.Clone(z.records[key]), nil
}

// watchName watches one name under virtual time and passes the last found workers to check.
func watchName(t *testing.T, cfg config.DNSDiscovery, check func(z *fakeDNS, found func() string, n *dnsName, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		z := &fakeDNS{records: map[string][]dnsRecord{}, failures: map[string]string{}}
		var (
			mu   sync.Mutex
			last []Worker
			log  bytes.Buffer
		)
		d := &config.Discovery{DNS: []config.DNSDiscovery{cfg}, Interval: 10 * time.Second, Grace: time.Minute}
		n := newDNSName(d, 0, slog.New(slog.NewTextHandler(&log, nil)), func(ws []Worker) {
			mu.Lock()
			defer mu.Unlock()
			last = ws
		})
		n.lookup = z.lookupQuestion
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		found := func() string {
			time.Sleep(11 * time.Second) // at least one round
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if p := CheckWorkers(last); len(p) > 0 {
				t.Errorf("workers that Check refuses: %v", p)
			}
			var out []string
			for _, w := range last {
				out = append(out, strings.TrimSuffix(fmt.Sprintf("%s=%s*%g@%s", w.Name, w.URL, w.Weight, w.ServerName), "@"))
			}
			return strings.Join(out, " ")
		}
		go func() { defer close(done); n.lookupUntilDone(ctx) }()
		check(z, found, n, &log)
		cancel()
		<-done
	})
}

const vllmQuestionA, vllmQuestionAAAA = "vllm.test. TypeA", "vllm.test. TypeAAAA"

func TestDNSNameGrowsAndShrinks(t *testing.T) {
	cfg := config.DNSDiscovery{Name: "vllm.test", Port: 8000, GPU: "H100", Labels: map[string]string{"rack": "r7"}}
	watchName(t, cfg, func(z *fakeDNS, found func() string, _ *dnsName, _ *bytes.Buffer) {
		z.setRecords(vllmQuestionA, "10.0.0.2", "10.0.0.1", "10.0.0.2")
		if got := found(); got != "dns-10-0-0-1-8000=http://10.0.0.1:8000*1 dns-10-0-0-2-8000=http://10.0.0.2:8000*1" {
			t.Errorf("found %s", got)
		}
		z.setRecords(vllmQuestionA, "10.0.0.3")
		z.setRecords(vllmQuestionAAAA, "fd00::1")
		if got := found(); got != "dns-10-0-0-3-8000=http://10.0.0.3:8000*1 dns-fd00-0000-0000-0000-0000-0000-0000-0001-8000=http://[fd00::1]:8000*1" {
			t.Errorf("then found %s", got)
		}
	})
}

func TestFailedLookupRemovesNoWorker(t *testing.T) {
	for _, outcome := range []string{"nxdomain", "refused", "malformed", "unreachable"} {
		watchName(t, config.DNSDiscovery{Name: "vllm.test", Port: 8000}, func(z *fakeDNS, found func() string, n *dnsName, log *bytes.Buffer) {
			z.setRecords(vllmQuestionA, "10.0.0.1")
			found()
			z.failLookups(vllmQuestionA, outcome)
			for range 100 {
				if got := found(); got != "dns-10-0-0-1-8000=http://10.0.0.1:8000*1" {
					t.Fatalf("%s: found %q", outcome, got)
				}
			}
			n.mu.Lock()
			if n.oldestStale < 15*time.Minute || n.outcomeCounts[outcome] < 50 {
				t.Errorf("%s: the answer is %s old, lookups are %v", outcome, n.oldestStale, n.outcomeCounts)
			}
			n.mu.Unlock()
			z.failLookups(vllmQuestionA, "")
			z.setRecords(vllmQuestionA, "10.0.0.2")
			if got := found(); got != "dns-10-0-0-2-8000=http://10.0.0.2:8000*1" {
				t.Errorf("%s: after recovery found %q", outcome, got)
			}
			if strings.Count(log.String(), "lookups fail") != 1 || strings.Count(log.String(), "answers again") != 1 {
				t.Errorf("%s: trouble and its end are not logged once each:\n%s", outcome, log)
			}
		})
	}
}

func TestFailingAddressFamilyLeavesTheOther(t *testing.T) {
	watchName(t, config.DNSDiscovery{Name: "vllm.test", Port: 8000}, func(z *fakeDNS, found func() string, _ *dnsName, _ *bytes.Buffer) {
		z.failLookups(vllmQuestionAAAA, "refused")
		z.setRecords(vllmQuestionA, "10.0.0.1")
		found()
		z.setRecords(vllmQuestionA, "10.0.0.2")
		if got := found(); got != "dns-10-0-0-2-8000=http://10.0.0.2:8000*1" {
			t.Errorf("found %q", got)
		}
	})
}

func TestEmptyAnswerAppliesAfterGrace(t *testing.T) {
	watchName(t, config.DNSDiscovery{Name: "vllm.test", Port: 8000}, func(z *fakeDNS, found func() string, _ *dnsName, log *bytes.Buffer) {
		z.setRecords(vllmQuestionA, "10.0.0.1")
		found()
		z.setRecords(vllmQuestionA)
		for range 2 {
			if found() == "" {
				t.Error("a blip took the worker away")
			}
		}
		for range 8 {
			found()
		}
		if got := found(); got != "" {
			t.Errorf("after the grace found %q", got)
		}
		if strings.Count(log.String(), "for the grace") != 1 || strings.Count(log.String(), "are removed") != 1 {
			t.Errorf("logged:\n%s", log)
		}
	})
}

func TestForbiddenAddressesAreIgnored(t *testing.T) {
	watchName(t, config.DNSDiscovery{Name: "vllm.test", Port: 80}, func(z *fakeDNS, found func() string, _ *dnsName, log *bytes.Buffer) {
		z.setRecords(vllmQuestionA, "169.254.169.254", "10.0.0.1", "0.0.0.0", "224.0.0.1", "100.100.100.200")
		z.setRecords(vllmQuestionAAAA, "fe80::1", "::", "fd00:ec2::254", "64:ff9b::a9fe:a9fe")
		found()
		if got := found(); got != "dns-10-0-0-1-80=http://10.0.0.1:80*1" {
			t.Errorf("found %q", got)
		}
		if n := strings.Count(log.String(), "address ignored"); n != 8 {
			t.Errorf("%d lines, want one for each of 8 addresses:\n%s", n, log)
		}
	})
}

func TestServiceRecords(t *testing.T) {
	cfg := config.DNSDiscovery{Name: "_http._tcp.vllm.test", Type: config.TypeSRV, Scheme: "https", Prefix: "s"}
	watchName(t, cfg, func(z *fakeDNS, found func() string, _ *dnsName, _ *bytes.Buffer) {
		const srv = "_http._tcp.vllm.test. TypeSRV"
		z.mu.Lock()
		z.records[srv] = []dnsRecord{
			{target: "c.test.", port: 8003, priority: 20, weight: 1},
			{target: "a.test.", port: 8001, priority: 10, weight: 60},
			{target: "b.test.", port: 8002, priority: 10, weight: 0},
			{target: "same.test.", port: 8001, priority: 10, weight: 5},
		}
		z.mu.Unlock()
		z.setRecords("a.test. TypeA", "10.0.0.1")
		z.setRecords("b.test. TypeA", "10.0.0.2")
		z.setRecords("c.test. TypeA", "10.0.0.3")
		z.setRecords("same.test. TypeA", "10.0.0.1")
		if got := found(); got != "s-10-0-0-1-8001=https://10.0.0.1:8001*60@a.test s-10-0-0-2-8002=https://10.0.0.2:8002*1@b.test" {
			t.Errorf("found %s", got)
		}
		z.setRecords("a.test. TypeA")
		z.setRecords("b.test. TypeA")
		z.setRecords("same.test. TypeA")
		found()
		time.Sleep(2 * time.Minute)
		if got := found(); got != "s-10-0-0-3-8003=https://10.0.0.3:8003*1@c.test" {
			t.Errorf("once the first priority has no address found %q", got)
		}
	})
}

// TestRecordCache: failures never change the records in force, and answers with records always do.
func TestRecordCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			tr    recordCache
			now   = time.Unix(1e9, 0)
			grace = time.Minute
			empty time.Time
		)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-5, 40).Draw(t, "seconds")) * time.Second) // clocks step back too
			before := slices.Clone(tr.records)
			switch rapid.IntRange(0, 2).Draw(t, "outcome") {
			case 0:
				tr.applyLookup(nil, errors.New("x"), grace, now)
				if !slices.Equal(before, tr.records) {
					t.Fatal("a failure changed the records")
				}
			case 1:
				tr.applyLookup(nil, nil, grace, now)
				if len(before) > 0 && empty.IsZero() {
					empty = now
				}
				if len(tr.records) == 0 && len(before) > 0 && now.Sub(empty) < grace {
					t.Fatalf("an empty answer took effect after %s", now.Sub(empty))
				}
				if len(tr.records) == 0 {
					empty = time.Time{}
				}
			case 2:
				a := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, 9).Draw(t, "address"))})
				tr.applyLookup([]dnsRecord{{addr: a}, {addr: a}}, nil, grace, now)
				empty = time.Time{}
				if len(tr.records) != 1 || tr.records[0].addr != a || tr.staleFor(now) != 0 {
					t.Fatalf("an answer did not take effect: %v", tr.records)
				}
			}
			if tr.staleFor(now) < 0 {
				t.Fatal("a negative age")
			}
		}
	})
}
