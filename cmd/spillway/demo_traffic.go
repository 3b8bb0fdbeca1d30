package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/load"
)

// makeTypicalLengths returns a long-tailed distribution of token counts around a median: the 90th percentile is three times
// the median.
func makeTypicalLengths(median int) load.LengthDist {
	return load.LengthDist{Median: median, P90: 3 * median, Max: 20 * median}
}

// startBackgroundTraffic sends steady traffic to the fleet, from every region's city in turn, and returns a function that stops
// it.
func (d *demoOptions) startBackgroundTraffic(ctx context.Context, out io.Writer, p *fleet.Files) (func(), error) {
	if d.trafficRate <= 0 {
		return func() {}, nil
	}
	key, err := p.ReadTenantKey("acme")
	if err != nil {
		return nil, fmt.Errorf("reading the demo's key: %w", err)
	}
	source, err := load.NewPoissonSource(load.PoissonConfig{Rate: d.trafficRate, Prompt: makeTypicalLengths(300), Output: makeTypicalLengths(40), Groups: 8, PrefixTokens: 128, Seed: 1})
	if err != nil {
		return nil, err
	}
	var clients []load.Client
	for i, s := range fleet.AllSites()[:p.Layout.Regions] {
		c := load.Client{Name: s.City}
		c.Source, _ = p.ClientAddr(i)
		clients = append(clients, c)
	}
	var dns []string
	for _, a := range p.DNSAddrs() {
		dns = append(dns, a.String())
	}
	g, err := load.NewGenerator(load.Config{
		Source: source, Clients: clients, Models: []string{"llama-3.1-8b", "qwen2.5-7b"}, Key: key, Stream: true,
		Target: load.Target{Service: strings.TrimSuffix(fleet.ServiceName, "."), DNS: dns, Port: int(p.NodesByRole("regional")[0].Addr["http"].Port())},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := g.Run(ctx); err != nil {
			fmt.Fprintln(out, "background traffic:", err)
		}
	})
	stop := startLoadProgress(out, g, 0)
	return func() {
		cancel()
		running.Wait()
		stop()
		fmt.Fprintln(out, "background traffic in total:", formatLoadSummary(g.CurrentReport()))
	}, nil
}

// formatLoadSummary returns the results of a run so far on one line.
func formatLoadSummary(r *load.LoadReport) string {
	var ttft time.Duration
	var tokens uint64
	for _, g := range r.Regions {
		ttft = max(ttft, g.TTFT.P50)
		tokens += g.OutputTokens
	}
	line := fmt.Sprintf("%d sent, %d ok, %d rejected, %d interrupted, %d failed, %d in flight, %.0f tokens/s, highest TTFT p50 of a region %s",
		r.Sent, r.OK, r.Refused, r.Cut, r.Lost+r.NoAddress, r.InFlight, float64(tokens)/max(r.Elapsed.Seconds(), 1), ttft.Round(time.Millisecond))
	if r.Retried > 0 {
		line += fmt.Sprintf(", %d retried elsewhere", r.Retried)
	}
	return line
}

// startLoadProgress prints the results so far until the returned function is called: on a terminal one line that is updated
// every second, elsewhere nothing, to keep logs short.
func startLoadProgress(w io.Writer, g *load.Generator, length time.Duration) func() {
	if !isTerminal(w) {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				fmt.Fprint(w, "\r\033[K")
				return
			case <-tick.C:
				r := g.CurrentReport()
				left := ""
				if length > 0 {
					left = fmt.Sprintf(", %s left", max(length-r.Elapsed, 0).Round(time.Second))
				}
				fmt.Fprintf(w, "\r\033[K%s: %s%s", r.Elapsed.Round(time.Second), formatLoadSummary(r), left)
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
