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

// lengths spreads token counts around a median the way people's requests do: one in ten is three times as long.
func lengths(median int) load.Lengths {
	return load.Lengths{Median: median, P90: 3 * median, Max: 20 * median}
}

// background keeps steady traffic on the planet, from every region's city in turn, and returns what ends it.
func (d *demo) background(ctx context.Context, out io.Writer, p *fleet.Planet) (func(), error) {
	if d.traffic <= 0 {
		return func() {}, nil
	}
	key, err := p.Key("acme")
	if err != nil {
		return nil, fmt.Errorf("reading the demo's key: %w", err)
	}
	source, err := load.NewPoisson(load.Poisson{Rate: d.traffic, Prompt: lengths(300), Output: lengths(40), Groups: 8, PrefixTokens: 128, Seed: 1})
	if err != nil {
		return nil, err
	}
	var clients []load.Client
	for i, s := range fleet.Sites()[:p.Layout.Regions] {
		c := load.Client{Name: s.City}
		c.Source, _ = p.Source(i)
		clients = append(clients, c)
	}
	var dns []string
	for _, a := range p.DNS() {
		dns = append(dns, a.String())
	}
	g, err := load.New(load.Config{
		Source: source, Clients: clients, Models: []string{"llama-3.1-8b", "qwen2.5-7b"}, Key: key, Stream: true,
		Target: load.Target{Service: strings.TrimSuffix(fleet.Service, "."), DNS: dns, Port: int(p.Of("regional")[0].Addr["http"].Port())},
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
	stop := showProgress(out, g, 0)
	return func() {
		cancel()
		running.Wait()
		stop()
		fmt.Fprintln(out, "background traffic in all:", oneLine(g.Report()))
	}, nil
}

// oneLine is what a run came to so far.
func oneLine(r *load.Report) string {
	var ttft time.Duration
	var tokens uint64
	for _, g := range r.Regions {
		ttft = max(ttft, g.TTFT.P50)
		tokens += g.OutputTokens
	}
	line := fmt.Sprintf("%d sent, %d ok, %d refused, %d cut, %d lost, %d in flight, %.0f tokens/s, slowest region's TTFT p50 %s",
		r.Sent, r.OK, r.Refused, r.Cut, r.Lost+r.Nowhere, r.InFlight, float64(tokens)/max(r.Elapsed.Seconds(), 1), ttft.Round(time.Millisecond))
	if r.Retried > 0 {
		line += fmt.Sprintf(", %d retried elsewhere", r.Retried)
	}
	return line
}

// showProgress prints how a run is doing until the returned function is called: on a terminal one line that changes
// every second, elsewhere nothing, since a log is no place for it.
func showProgress(w io.Writer, g *load.Generator, length time.Duration) func() {
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
				r := g.Report()
				left := ""
				if length > 0 {
					left = fmt.Sprintf(", %s left", max(length-r.Elapsed, 0).Round(time.Second))
				}
				fmt.Fprintf(w, "\r\033[K%s: %s%s", r.Elapsed.Round(time.Second), oneLine(r), left)
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
